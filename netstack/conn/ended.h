/* The shard's list of connections that have ended with unread bytes. */
#pragma once

struct net_conn;

/* The sweeps over the list. */
enum net_ended_sweep {
	NET_ENDED_MEMORY, /* shard/shortage.c */
	NET_ENDED_FRAMES, /* shard/frames.c */
	NET_ENDED_SWEEPS
};

/* Lists a connection whose pcb was freed, if it has unread bytes. */
void net_ended_enter(struct net_conn *conn);
/* Removes a connection that will be freed, if it is listed. */
void net_ended_leave(struct net_conn *conn);
/*
 * Begins a sweep over the list. Each net_ended_next() returns one connection,
 * the newest first; NULL: no more.
 */
void net_ended_begin(enum net_ended_sweep sweep);
struct net_conn *net_ended_next(enum net_ended_sweep sweep);
void net_ended_fini(void);
