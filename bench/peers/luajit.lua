#!/usr/bin/luajit
-- SPDX-License-Identifier: Apache-2.0
--
-- LuaJIT's coroutines. Their stacks grow by themselves: the sizes of stacks are ignored; their
-- locals lie in memory at all times, so there is no workload with live registers. Relies on
-- luajit and its ffi, for the clock, and on /proc.
--
-- kind: interpreted, stackful
-- needs: luajit
-- peer: LuaJIT
-- build: cp "$SRC" "$OUT"

local ffi = require("ffi")
local new_table = require("table.new")
local create, resume, yield = coroutine.create, coroutine.resume, coroutine.yield

-- ---- Clock and checks --------------------------------------------------------------------------

ffi.cdef [[
    typedef struct { long sec, nsec; } timespec_t;
    int clock_gettime(int clock, timespec_t *now);
]]
local CLOCK_MONOTONIC = 1
local now = ffi.new("timespec_t")

local function now_ns()
    ffi.C.clock_gettime(CLOCK_MONOTONIC, now)
    return tonumber(now.sec) * 1e9 + tonumber(now.nsec)
end

local function check(holds, words)
    if not holds then
        io.stderr:write("peer: ", words, "\n")
        os.exit(1)
    end
end

local function ns_each(ct, work)
    local start = now_ns()
    work()
    return (now_ns() - start) / ct
end

local function number(word)
    local value = tonumber(word)
    check(value and value >= 1 and value % 1 == 0,
        "the arguments of a workload are numbers, of 1 at least")
    return value
end

-- ---- Bodies: they yield 1, 2, 3 and so on, given `ct` when they start --------------------------

local function flat(ct)
    for yields = 1, ct do
        yield(yields)
    end
end

-- Two values are returned, so that no call is a tail call.
local function call_4(yields) return yield(yields), 0 end
local function call_3(yields) return call_4(yields), 0 end
local function call_2(yields) return call_3(yields), 0 end
local function call_1(yields) return call_2(yields), 0 end

local function deep(ct)
    for yields = 1, ct do
        call_1(yields)
    end
end

-- ---- Workloads ---------------------------------------------------------------------------------

-- Each workload is done once before it is measured, so that allocators and caches are warm.
local WARM_UP_CT = 1000
local TABLE_CYCLES = 20 -- of create, end, drop, for their means

-- The first resume gives the body its argument; later ones ignore theirs.
local function resume_rounds(all, from, rounds, ct)
    for round = from, from + rounds - 1 do
        for i = 1, #all do
            local _, yields = resume(all[i], ct)
            if yields ~= round then
                check(false, "a resume was lost")
            end
        end
    end
end

-- `ct` is the argument of those that have not started.
local function end_all(all, ct)
    for i = 1, #all do
        check(resume(all[i], ct) and coroutine.status(all[i]) == "dead", "a coroutine did not end")
    end
end

-- The first resume, which starts it, and the last, which ends it, are not measured. `disturb`
-- is called while it is suspended.
local function switch(body, ct, disturb)
    local co = create(body)
    resume_rounds({co}, 1, 1, ct + 1)
    disturb()
    local ns = ns_each(ct, function()
        for round = 2, ct + 1 do
            local _, yields = resume(co)
            if yields ~= round then
                check(false, "a resume was lost")
            end
        end
    end)
    end_all({co})
    print(("ns %.3f"):format(ns))
end

local function create_all(ct, body)
    local all = new_table(ct, 0)
    local ns = ns_each(ct, function()
        for i = 1, ct do
            all[i] = create(body)
        end
    end)
    return all, ns
end

-- Create, one resume to the end and drop, one after the other.
local function life(ct)
    local function lives(ct)
        return ns_each(ct, function()
            for _ = 1, ct do
                end_all({create(flat)}, 0)
            end
        end)
    end
    lives(WARM_UP_CT)
    print(("ns %.3f"):format(lives(ct)))
end

-- To destroy or kill is to drop: the collection that frees them is what it costs.
local function drop(all)
    return ns_each(#all, function()
        for i = 1, #all do
            all[i] = nil
        end
        collectgarbage()
    end)
end

local METRICS = {"create_ns", "switch_ns", "last_ns", "destroy_ns", "kill_ns"}
local SWITCH = 2

local function cycle(ct, switches)
    collectgarbage()
    local all, create_ns = create_all(ct, flat)
    local switch_ns = ns_each(ct * switches, function()
        resume_rounds(all, 1, switches, switches)
    end)
    local last_ns = ns_each(ct, function() end_all(all) end)
    local destroy_ns = drop(all)
    all = create_all(ct, flat)
    resume_rounds(all, 1, 1, 2)
    return {create_ns, switch_ns, last_ns, destroy_ns, drop(all)}
end

local function run_table(ct, switches)
    cycle(ct, 1)
    local means = {0, 0, 0, 0, 0}
    for _ = 1, TABLE_CYCLES do
        for i, ns in ipairs(cycle(ct, 1)) do
            means[i] = means[i] + ns / TABLE_CYCLES
        end
    end
    means[SWITCH] = cycle(ct, switches)[SWITCH]
    for i, metric in ipairs(METRICS) do
        print(("%s %.3f"):format(metric, means[i]))
    end
end

-- The round that starts them is not measured.
local function many(ct, rounds)
    local cold = create_all(ct, flat)
    resume_rounds(cold, 1, 1, 2)
    drop(cold)
    local all, create_ns = create_all(ct, flat)
    resume_rounds(all, 1, 1, rounds + 1)
    local switch_ns = ns_each(ct * rounds, function() resume_rounds(all, 2, rounds) end)
    end_all(all)
    print(("create_ns %.3f\nswitch_ns %.3f"):format(create_ns, switch_ns))
end

-- ---- Memory ------------------------------------------------------------------------------------

local SLOT_BYTES = 8 -- of a value, on a coroutine's stack as in a table
local PAGE_BYTES = 4096

local function resident_bytes()
    local statm = assert(io.open("/proc/self/statm"))
    local _, pages = statm:read("*n", "*n")
    statm:close()
    return pages * PAGE_BYTES
end

-- A body with so many numbers alive across each yield. The first one counts the yields; after each,
-- the second and the last are as they were.
local function holder(ct)
    local names = {}
    for i = 1, ct do
        names[i] = "n" .. i
    end
    local text = ([[
        local yield, check = ...
        return function(ct)
            local %s = 1%s
            while n1 <= ct do
                yield(n1)
                check(n%d == n%d, "a live value changed")
                n1 = n1 + 1
            end
        end
    ]]):format(table.concat(names, ", "), (", ct"):rep(ct - 1), math.min(2, ct), ct)
    return assert(loadstring(text))(yield, check)
end

-- So many coroutines are suspended, each with so many bytes of its own; two rounds start them and
-- warm up. None of them is garbage, so the collector rests while they are made.
local function share(ct, live_bytes, rounds)
    local body = holder(math.ceil(live_bytes / SLOT_BYTES))
    collectgarbage()
    collectgarbage("stop")
    local before = resident_bytes()
    local all, create_ns = create_all(ct, body)
    resume_rounds(all, 1, 2, rounds + 2)
    local bytes = (resident_bytes() - before) / ct - SLOT_BYTES
    local ns = ns_each(ct * rounds, function() resume_rounds(all, 3, rounds) end)
    end_all(all)
    print(("create_ns %.3f\nns %.3f\nbytes %.3f"):format(create_ns, ns, bytes))
end

-- ---- Skynet ------------------------------------------------------------------------------------

local CHILDREN = 10

-- A parent makes its ten children, then resumes one after the other.
local function nested(first, ct)
    if ct == 1 then
        return first
    end
    local children, sum = {}, 0
    for i = 1, CHILDREN do
        children[i] = create(nested)
    end
    for i = 1, CHILDREN do
        local _, found = resume(children[i], first + (i - 1) * (ct / CHILDREN), ct / CHILDREN)
        sum = sum + found
    end
    return sum
end

local function run_nested(leaves)
    local _, sum = resume(create(nested), 0, leaves)
    return sum
end

-- The last made runnable runs first, so that few are alive at a time.
local runnable = {}

local function spawn(body, parent, first, ct)
    runnable[#runnable + 1] = {
        co = create(body), parent = parent, first = first, ct = ct, sum = 0, waits_for = 0,
    }
end

-- Returns what it found; a parent yields until its last child has reported.
local function scheduled(task)
    if task.ct == 1 then
        return task.first
    end
    task.waits_for = CHILDREN
    for i = 1, CHILDREN do
        local ct = task.ct / CHILDREN
        spawn(scheduled, task, task.first + (i - 1) * ct, ct)
    end
    yield()
    return task.sum
end

local function report(parent, found)
    parent.sum = parent.sum + found
    parent.waits_for = parent.waits_for - 1
    if parent.waits_for == 0 then
        runnable[#runnable + 1] = parent
    end
end

local function run_scheduled(leaves)
    local total
    spawn(scheduled, nil, 0, leaves)
    while #runnable > 0 do
        local task = table.remove(runnable)
        local _, found = resume(task.co, task)
        if found and task.parent then
            report(task.parent, found)
        elseif found then
            total = found
        end
    end
    return total
end

local function skynet(run, leaves)
    local rest = leaves
    while rest % CHILDREN == 0 do
        rest = rest / CHILDREN
    end
    check(rest == 1, "the leaves of skynet are a power of ten")
    local sum
    local ns = ns_each(1, function() sum = run(leaves) end)
    check(sum == leaves * (leaves - 1) / 2, "skynet's sum is wrong")
    print(("ms %.3f"):format(ns / 1e6))
end

-- ---- Which workload ----------------------------------------------------------------------------

local skynets = {nested = run_nested, scheduler = run_scheduled}
local workloads = {
    switch = function(ct) switch(flat, number(ct), function() end) end,
    switch_deep = function(ct) switch(deep, number(ct), function() end) end,
    life = function(ct) life(number(ct)) end,
    table = function(ct, switches) run_table(number(ct), number(switches)) end,
    many = function(ct, _, rounds) many(number(ct), number(rounds)) end,
    share = function(ct, bytes, rounds) share(number(ct), number(bytes), number(rounds)) end,
}

-- The division leaves the flag of an inexact result in this thread's MXCSR.
function workloads.switch_inexact(ct)
    switch(flat, number(ct), function()
        check(1 / tonumber(3) < 1, "a third is too much")
    end)
end

function workloads.skynet(kind, leaves)
    if not skynets[kind] then
        os.exit(77)
    end
    skynet(skynets[kind], number(leaves or 1000000))
end

local workload = workloads[arg[1]]
if not workload then
    os.exit(77)
end
workload(select(2, unpack(arg)))
