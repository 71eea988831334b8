// SPDX-License-Identifier: Apache-2.0
/*
 * Lua 5.4 in coroutines: on a stack of LUA_STACK_SZ each way of recursing through C ends in an
 * error of Lua's; and coroutines, each with a lua_newthread(), yield inside protected calls.
 */
#include "aco.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#define LUA_STACK_SZ ((size_t)1 << 20) /* bytes; as docs/limits.md advises */
#define ARRAY_SZ(array) (sizeof(array) / sizeof((array)[0]))

static const char *const recursions[] = {
    "local function f() return (string.gsub('a', 'a', f)) end return pcall(f)",
    "local function f() table.sort({2, 1}, f) end return pcall(f)",
    "local function f() return assert(pcall(f)) end return pcall(f)",
    "return load(string.rep('(', 300) .. '1' .. string.rep(')', 300))",
};

/* Counts in `ended`, for all lua_newthread() of a state. */
static const char yields_and_fails[] =
    "local ok = pcall(function() for i = 1, 3 do aco_yield() end error('told') end)\n"
    "assert(not ok) aco_yield() ended = (ended or 0) + 1";

static int lua_aco_yield(lua_State *lua)
{
    (void)lua;
    aco_yield();
    return 0;
}

/* Runs what lies on top of the Lua stack. */
static void runs_chunk(void)
{
    lua_State *lua = (lua_State *)aco_get_arg();
    if (lua_pcall(lua, 0, 1, 0) != LUA_OK) {
        fprintf(stderr, "%s\n", lua_tostring(lua, -1));
        exit(1);
    }
    aco_exit();
}

static void check_recursion(aco_t *main_co, lua_State *lua, const char *code)
{
    aco_share_stack_t *stack = aco_share_stack_new(LUA_STACK_SZ);
    aco_assert(luaL_loadstring(lua, code) == LUA_OK);
    aco_t *co = aco_create(main_co, stack, 0, runs_chunk, lua);
    aco_resume(co);
    aco_assert(co->is_end && !lua_toboolean(lua, -1)); /* the error was caught */
    lua_settop(lua, 0);
    aco_destroy(co);
    aco_share_stack_destroy(stack);
}

static void check_yields(aco_t *main_co, lua_State *lua)
{
    aco_t *cos[5];
    aco_share_stack_t *stack = aco_share_stack_new(LUA_STACK_SZ);
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        lua_State *thread = lua_newthread(lua);
        aco_assert(luaL_loadstring(thread, yields_and_fails) == LUA_OK);
        cos[i] = aco_create(main_co, stack, 0, runs_chunk, thread);
    }
    for (size_t i = 0; i < 5 * ARRAY_SZ(cos); i++) {
        aco_resume(cos[i % ARRAY_SZ(cos)]);
    }
    lua_getglobal(lua, "ended");
    aco_assert(lua_tointeger(lua, -1) == (lua_Integer)ARRAY_SZ(cos));
    for (size_t i = 0; i < ARRAY_SZ(cos); i++) {
        aco_assert(cos[i]->is_end);
        aco_destroy(cos[i]);
    }
    aco_share_stack_destroy(stack);
}

int main(void)
{
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    lua_register(lua, "aco_yield", lua_aco_yield);
    aco_thread_init(NULL);
    aco_t *main_co = aco_create(NULL, NULL, 0, NULL, NULL);
    for (size_t i = 0; i < ARRAY_SZ(recursions); i++) {
        check_recursion(main_co, lua, recursions[i]);
    }
    check_yields(main_co, lua);
    aco_destroy(main_co);
    lua_close(lua);
    return 0;
}
