/*
 * coroutines.h - what the fragments in docs/coroutines.md assume.
 * check_docs.py compiles each of them after this.
 */
#pragma once

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <coronet/coro.h>
#include <coronet/coro_chan.h>
#include <coronet/coro_io.h>
#include <coronet/coro_sync.h>

struct job {
	int id;
};

struct counter {
	int calls;
};

struct lookup {
	const char *name;
	struct addrinfo *found;
	int err;
};

struct session;

extern struct coro_sched *s;
extern struct coro *co, *consumer;
extern struct coro_chan *jobs, *results;
extern struct job *job, next, result;
extern int64_t deadline, start;
extern bool ready, stop;
extern int err, pieces;

void *work(void *arg);
int work_on(FILE *f);
void close_file(void *f);
void use(void *value);
void on_news(void *arg);
void on_share(void *arg);
void do_piece(int i);
void collect(int step);
void poll_my_devices(void);
void give_to_another_coroutine(char *buf);
int talk_to_a_slow_peer(void);
void end_session(struct session *session);
void change_half(void);
void change_other_half(void);
void look_up(void);
void replace(void);
void say_busy(void);
void do_job(const struct job *j);
struct job next_result(void);
void give_up(void);
void do_something_else(void);
