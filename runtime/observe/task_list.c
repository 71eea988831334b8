// SPDX-License-Identifier: Apache-2.0
/*
 * Prints the list of all tasks. Tasks that wait for the same in the same place make one entry. All
 * of it also works in the handler of a fatal signal: memory is mapped, names are read from files,
 * and no lock is waited for in vain.
 */
#include "observe/observe.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ENTRIES 1024u
#define CT_SLOTS (2 * MOST_ENTRIES)
#ifdef __arm__
#define HAS_BACKTRACES 0
#else
#define HAS_BACKTRACES 1
#endif
#define CT_IDS 8                            /* ids of further tasks that an entry shows */
#define BACKTRACES_TIME INT64_C(5000000000) /* ns after which backtraces are left out */

static const char *const state_names[] = {"free", "new", "ready", "running", "waits", "ended"};
const char *const aco_i_reason_names[CT_REASONS] = {
#define X(reason, name) name,
    ACO_I_REASONS(X)
#undef X
};

/* Tasks that are alike. */
typedef struct {
    aco_task_t first; /* a copy of the one that has waited longest */
    size_t ct;
    uint64_t ids[CT_IDS]; /* of others */
    int64_t latest;       /* when the last of them began to wait */
    aco_i_backtrace_t backtrace;
} entry_t;

typedef struct {
    entry_t entries[MOST_ENTRIES];
    uint16_t slots[CT_SLOTS], order[MOST_ENTRIES]; /* indices of entries; in slots, plus 1 */
    size_t ct, ct_tasks, ct_left_out;
    int64_t now, until;
    const aco_i_registers_t *registers;
} list_t;

static list_t *list;

/* ==== Collecting ============================================================================= */

static int is_alike(const entry_t *entry, const aco_task_t *task,
                    const aco_i_backtrace_t *backtrace)
{
    return entry->first.state == task->state && entry->first.reason == task->reason &&
           entry->backtrace.ct == backtrace->ct &&
           memcmp(entry->backtrace.pcs, backtrace->pcs,
                  (size_t)backtrace->ct * sizeof(backtrace->pcs[0])) == 0;
}

static size_t hash_of(const aco_task_t *task, const aco_i_backtrace_t *backtrace)
{
    uint64_t hash = (uint64_t)task->state << 8 | (uint64_t)task->reason;
    for (int i = 0; i < backtrace->ct; i++) {
        hash = (hash ^ backtrace->pcs[i]) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return (size_t)(hash >> 32);
}

/* The entry for such a task, perhaps a new one, with ct 0; NULL: there is no room. */
static entry_t *find_entry(const aco_task_t *task, const aco_i_backtrace_t *backtrace)
{
    for (size_t i = hash_of(task, backtrace);; i++) {
        uint16_t *slot = &list->slots[i % CT_SLOTS];
        entry_t *entry = &list->entries[*slot == 0 ? list->ct : *slot - 1u];
        if (*slot != 0 && is_alike(entry, task, backtrace)) {
            return entry;
        }
        if (*slot == 0) {
            if (list->ct == MOST_ENTRIES) {
                return NULL;
            }
            *slot = (uint16_t)++list->ct;
            entry->ct = 0;
            entry->backtrace = *backtrace;
            return entry;
        }
    }
}

static void add_to_entry(entry_t *entry, const aco_task_t *task)
{
    uint64_t id = task->id;
    int is_first = entry->ct == 0 || task->since < entry->first.since;
    if (entry->ct == 0 || task->since > entry->latest) {
        entry->latest = task->since;
    }
    if (is_first && entry->ct != 0) {
        id = entry->first.id;
    }
    if (is_first) {
        entry->first = *task;
    }
    if (entry->ct > 0 && entry->ct <= CT_IDS) {
        entry->ids[entry->ct - 1] = id;
    }
    entry->ct++;
}

/* Finds the backtrace of a task, if it can be found in time; `task` becomes the copy that fits. */
static void find_backtrace(const aco_task_t *at, aco_task_t *task, aco_i_backtrace_t *backtrace)
{
    *backtrace = (aco_i_backtrace_t){.ct = 0};
    if (task->state == TASK_RUNNING) {
        if (task->loop == aco_i_loop) {
            aco_i_backtrace_here(task, list->registers, backtrace);
        } else if (aco_i_clock() < list->until) {
            aco_i_ask_backtrace(task->loop, at, backtrace);
        }
        return;
    }
    aco_task_t before = *task;
    for (int tries = 0; tries < 3 && task->co != NULL && aco_i_clock() < list->until; tries++) {
        before = *task;
        aco_i_backtrace_of(&before, backtrace);
        if (READ_STRUCT(task, at) && task->state == before.state &&
            task->suspended == before.suspended && task->since == before.since &&
            task->id == before.id) {
            return;
        }
        *backtrace = (aco_i_backtrace_t){.ct = 0}; /* the task has run meanwhile */
    }
    *task = before;
}

static void collect(const aco_task_t *at, void *arg)
{
    aco_task_t task;
    aco_i_backtrace_t backtrace;
    (void)arg;
    if (!READ_STRUCT(&task, at) || task.state == TASK_FREE || task.state >= TASK_ENDED) {
        return;
    }
    find_backtrace(at, &task, &backtrace);
    entry_t *entry = find_entry(&task, &backtrace);
    list->ct_tasks++;
    if (entry != NULL) {
        add_to_entry(entry, &task);
    } else {
        list->ct_left_out++;
    }
}

/* Puts running tasks first, then large entries, then low ids. */
static int is_before(const entry_t *a, const entry_t *b)
{
    int a_runs = a->first.state == TASK_RUNNING, b_runs = b->first.state == TASK_RUNNING;
    return a_runs != b_runs ? a_runs : a->ct != b->ct ? a->ct > b->ct : a->first.id < b->first.id;
}

static void sort(void)
{
    for (size_t i = 0; i < list->ct; i++) {
        size_t to = i;
        for (; to > 0 && is_before(&list->entries[i], &list->entries[list->order[to - 1]]); to--) {
            list->order[to] = list->order[to - 1];
        }
        list->order[to] = (uint16_t)i;
    }
}

/* ==== Printing =============================================================================== */

void aco_i_put_frames(aco_i_text_t *text, const aco_i_backtrace_t *backtrace)
{
    int i = 0;
    while (i < backtrace->ct && aco_i_is_function(backtrace->pcs[i], "aco_i_")) {
        i++;
    }
    for (; i < backtrace->ct && !aco_i_is_function(backtrace->pcs[i], "aco_i_enter_task"); i++) {
        aco_i_put(text, "    at ");
        aco_i_put_place(text, backtrace->pcs[i]);
        aco_i_put(text, "\n");
    }
    if (backtrace->ct == 1 && HAS_BACKTRACES && !aco_i_has_frames(backtrace->pcs[0])) {
        aco_i_put(text, "    its callers are unknown: link with -Wl,--eh-frame-hdr\n");
    }
    if (backtrace->ct == ACO_I_MOST_FRAMES) {
        aco_i_put(text, "    and so on\n");
    }
}

void aco_i_label(char *label, const aco_task_t *task)
{
    char name[ACO_I_NAME_SZ];
    size_t sz = task->name == NULL ? 0 : aco_i_read_memory(name, task->name, sizeof(name));
    if (aco_i_escape(label, name, sz) != 0) {
        return;
    }
    aco_i_text_t text = {.fd = -1};
    const char *function = aco_i_function_name((uintptr_t)task->fn);
    if (function == NULL) {
        aco_i_put_function(&text, (uintptr_t)task->fn);
        text.bytes[text.sz < sizeof(text.bytes) ? text.sz : 0] = '\0';
        function = text.bytes;
    }
    sz = strnlen(function, ACO_I_LABEL_SZ - 1);
    memcpy(label, function, sz);
    label[sz] = '\0';
}

void aco_i_put_title(aco_i_text_t *text, const aco_task_t *task)
{
    char label[ACO_I_LABEL_SZ];
    if (task->runtime == NULL) {
        aco_i_put(text, "a thread outside of tasks");
        return;
    }
    aco_i_put(text, "task ");
    aco_i_put_number(text, task->id, 10);
    aco_i_put(text, " \"");
    aco_i_label(label, task);
    aco_i_put(text, label);
    aco_i_put(text, "\"");
}

void aco_i_put_task(aco_i_text_t *text, const aco_task_t *task, const aco_i_backtrace_t *backtrace,
                    int64_t now)
{
    aco_i_put_title(text, task);
    aco_i_put(text, ": ");
    aco_i_put(text, state_names[task->state]);
    if (task->state == TASK_WAITING && task->reason < CT_REASONS) {
        aco_i_put(text, " for ");
        aco_i_put(text, aco_i_reason_names[task->reason]);
        if (task->reason == FOR_INPUT || task->reason == FOR_OUTPUT) {
            aco_i_put(text, " of descriptor ");
            aco_i_put_number(text, (uint64_t)task->fd, 10);
        }
        aco_i_put(text, " since ");
        aco_i_put_time(text, now - task->since);
        aco_i_put(text, " s");
    }
    if (task->deadline != NO_DEADLINE) {
        int is_over = task->deadline < now;
        aco_i_put(text, is_over ? ", deadline " : ", deadline in ");
        aco_i_put_time(text, is_over ? now - task->deadline : task->deadline - now);
        aco_i_put(text, is_over ? " s ago" : " s");
    }
    if (backtrace->stack_use != 0) {
        aco_i_put(text, ", ");
        aco_i_put_number(text, backtrace->stack_use, 10);
        aco_i_put(text, " bytes of stack");
    }
    aco_i_put(text, task->is_cancelled ? ", cancelled\n" : "\n");
}

static void put_others(aco_i_text_t *text, const entry_t *entry)
{
    aco_i_put(text, "    and ");
    aco_i_put_number(text, entry->ct - 1, 10);
    aco_i_put(text, " like it");
    if (entry->first.state == TASK_WAITING) {
        aco_i_put(text, ", the last since ");
        aco_i_put_time(text, list->now - entry->latest);
        aco_i_put(text, " s");
    }
    for (size_t i = 0; i < entry->ct - 1 && i < CT_IDS; i++) {
        aco_i_put(text, i == 0 ? ": " : ", ");
        aco_i_put_number(text, entry->ids[i], 10);
    }
    aco_i_put(text, entry->ct - 1 > CT_IDS ? ", ...\n" : "\n");
}

static void put_list(aco_i_text_t *text)
{
    sort();
    for (size_t i = 0; i < list->ct; i++) {
        const entry_t *entry = &list->entries[list->order[i]];
        aco_i_put_task(text, &entry->first, &entry->backtrace, list->now);
        if (entry->ct > 1) {
            put_others(text, entry);
        }
        aco_i_put_frames(text, &entry->backtrace);
    }
    if (list->ct_left_out != 0) {
        aco_i_put(text, "and others in further places: ");
        aco_i_put_number(text, list->ct_left_out, 10);
        aco_i_put(text, "\n");
    }
}

void aco_i_list_tasks(aco_i_text_t *text, const aco_i_registers_t *registers)
{
    aco_i_held_t held;
    aco_i_begin_backtraces();
    if (list == NULL) {
        list = (list_t *)aco_i_map(sizeof(*list), 0);
    }
    if (list == NULL) {
        aco_i_put(text, "no memory for a list of tasks\n");
        aco_i_end_backtraces();
        return;
    }
    memset(list->slots, 0, sizeof(list->slots));
    list->ct = list->ct_tasks = list->ct_left_out = 0;
    list->until = aco_i_clock() + BACKTRACES_TIME;
    list->registers = registers;
    aco_i_hold_runtimes(&held);
    for (size_t i = 0; i < held.ct; i++) {
        aco_i_each_task(held.runtimes[i], collect, NULL);
    }
    list->now = aco_i_clock(); /* not before: tasks began to wait while others were looked at */
    put_list(text);
    if (held.ct_left_out != 0) {
        aco_i_put(text, "and those of other runtimes, for which there is no memory: ");
        aco_i_put_number(text, held.ct_left_out, 10);
        aco_i_put(text, "\n");
    }
    aco_i_drop_runtimes(&held);
    aco_i_end_backtraces();
}

void aco_print_tasks(FILE *stream)
{
    need(stream, "aco_print_tasks", "there is no stream: pass stderr, say");
    /* Locks must not be held while `stream` blocks. */
    char *bytes = NULL;
    size_t sz = 0;
    aco_i_text_t text = {.stream = open_memstream(&bytes, &sz)};
    aco_i_registers_t registers = {0, 0, 0, 0};
    if (text.stream == NULL) {
        fprintf(stream, "no memory for a list of tasks\n");
        return;
    }
    ACO_I_HERE(registers);
    aco_i_find_modules();
    aco_i_list_tasks(&text, &registers);
    aco_i_flush(&text);
    if (fclose(text.stream) == 0) {
        fwrite(bytes, 1, sz, stream);
    }
    free(bytes);
}
