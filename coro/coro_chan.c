/*
 * coro_chan.c - channels and select.
 */
#include "coro_priv.h"

void coro_select_abandon(struct coro_sched *s, struct coro_select *sel)
{
}
