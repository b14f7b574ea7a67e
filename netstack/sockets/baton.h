/*
 * The baton of whole programs (baton.c), for those that pass it on: calls and
 * the loop (turns.c).
 */
#pragma once

#include "netstack/sockets/whole.h"

/* Waits for the baton, and enters the stack. */
void net_baton_take(void);
/* Leaves the stack, and passes the baton on, which is not biased then. */
void net_baton_give(void);
/* Returns whether another thread wants the baton. Called by its holder. */
bool net_baton_is_wanted(void);
/* How often threads have taken the baton, or begun to wait for it; wraps. */
uint32_t net_baton_tickets(void);
/*
 * Take the baton for a call and end the call, after which it may stay biased to
 * the thread.
 */
void net_baton_begin(void);
void net_baton_end(void);
/*
 * Ends the bias to the calling thread, which is in a call. Another thread may
 * have its record afterwards.
 */
void net_baton_forget(void);
/* Allows biases if the kernel has membarrier(2). */
void net_baton_allow_bias(void);
/* Disables cancellation until the end of the call. */
void net_disable_cancels(void);
/*
 * Wakes the loop, in which the baton's holder may sleep. Also in signal
 * handlers.
 */
void net_whole_wake_loop(void);
