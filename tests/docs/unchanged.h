/*
 * unchanged.h - what the fragments in docs/unchanged.md assume.
 * check_docs.py compiles each of them after this.
 */
#pragma once

#include <coronet/coro.h>

extern struct coro_sched *sched;
extern coro_fn query;
extern void *arg;
extern int err;
