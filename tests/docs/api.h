/*
 * api.h - what the fragments in docs/api.md assume.
 * check_docs.py compiles each of them after this.
 */
#pragma once

#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <coronet/coro_chan.h>
#include <coronet/net.h>
#include <coronet/net_control.h>

struct header {
	uint32_t len;
};

extern struct net_stack *stack;
extern struct net_listener *listener;
extern struct net_conn *conn, *upstream, *client;
extern struct coro_chan *commands;
extern struct net_view view;
extern struct header header;
extern char buf[4096], line[1024], body[4096];
extern size_t len, body_len;
extern int err, argc, pipe_fd;
extern int64_t deadline;
extern void *arg;
void *read_config(void *arg);
extern char **argv;
extern long n;

void echo(struct net_conn *conn, void *arg);
void handle(struct net_conn *conn, void *arg);
void *periodic(void *arg);
void *ask(void *arg);
void use(const void *data, size_t len);
void answer(struct net_conn *conn, const char *line);
void complain(const char *what, int err);
bool wants_more(void);
void pump(struct net_conn *from, struct net_conn *to);
void obey(void *arg);
void give_back(void *arg);
