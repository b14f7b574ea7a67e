/*
 * Private to lwip/: a pcb and its connection are one object.
 */
#pragma once

struct net_conn;

/* memp's side of a pcb's life. */
void *net_conn_alloc(void);
void net_conn_pcb_freed(struct net_conn *conn);
