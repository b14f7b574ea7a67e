/*
 * Private to lwip/: a pcb and its connection are one object.
 */
#pragma once

struct net_conn;

/*
 * Called by memp to allocate a pcb, as part of a zeroed connection; NULL: no
 * memory. The counterpart is net_conn_pcb_freed() in tcp/tcp.h.
 */
void *net_conn_alloc(void);
