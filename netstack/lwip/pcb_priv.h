/*
 * Private to lwip/: a pcb and its connection are one object.
 */
#pragma once

struct net_conn;

/* memp's side of the beginning of a pcb's life; tcp/tcp.h has its end. */
void *net_conn_alloc(void);
