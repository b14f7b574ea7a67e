/*
 * tls.h - what the fragments in docs/tls.md assume.
 * check_docs.py compiles each of them after this.
 */
#pragma once

#include <errno.h>
#include <stdio.h>

#include <coronet/net_tls.h>

extern struct net_stack *stack;
extern struct net_conn *conn;
extern struct net_addr addr;
extern int err;
