/*
 * What the public calls share.
 */
#pragma once

#include "netstack/link/link.h"
#include "netstack/program/program.h"

/* ---- recv.c, send.c ---- */
/* Bytes of all vectors; -EINVAL: too many, none where there are bytes. */
long net_iov_bytes(const struct iovec *iov, unsigned n);
bool net_conn_readable(const struct net_conn *conn);
bool net_conn_writable(const struct net_conn *conn);
/* What every call that writes begins with: 0 or why it cannot. */
int net_send_enter(const struct net_conn *conn);
/* net_send_all(), once it is certain that this is the stack's thread. */
long net_send_every(struct net_conn *conn, const void *buf, size_t len);
/* Blocks once: 0 when there may be room now. */
int net_send_wait_room(struct net_conn *conn);

/* ---- listen.c ---- */
err_t net_listener_established(struct net_conn *conn);
void net_listener_stop(struct net_listener *listener);
