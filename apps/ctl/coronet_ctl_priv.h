/*
 * Private to coronet-ctl: definitions that its commands share. The table of
 * commands is in coronet_ctl.c; commands that do more than print an answer have
 * files of their own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "apps/ctl/ctl_client.h"

#define CTL_MAX_WORDS 64

struct ctl {
	struct ctl_client client;
	const char *path;
	bool json;
	char filter[512];	 /* "peer=...,port=...", from the options */
	uint64_t count, seconds; /* limits of a trace; 0: none */
	char limits[128];	 /* "bytes=...,packets=...": of a capture */
	const char *words[CTL_MAX_WORDS]; /* the command and its arguments */
	unsigned n_words;
};

/* Options that only some commands have. */
enum ctl_takes { CTL_NONE, CTL_FILTERS, CTL_LIMITS, CTL_TRACE };

struct ctl_column;

struct command {
	const char *name;      /* one or two words */
	const char *arguments; /* for --help */
	unsigned least, most;  /* bounds of their number */
	const char *help;
	/* Prints the result, and returns an exit status. */
	int (*run)(struct ctl *ctl, const struct command *command);
	const char *request; /* to send to the program */
	const char *key;     /* of the list in the answer */
	const struct ctl_column *columns;
	enum ctl_takes takes;
};

/* Prints why there is no answer. Returns 1, the exit status. */
int ctl_fail(const struct ctl *ctl);
/*
 * Prints an answer, or its member `key` (NULL: all of it), and frees the
 * answer. answer NULL: prints why there is none. Returns the exit status.
 */
int ctl_print_answer(const struct ctl *ctl, cJSON *answer, const char *key);

/* ---- ctl_addr.c ---- */
int ctl_run_addr(struct ctl *ctl, const struct command *command);
int ctl_run_route(struct ctl *ctl, const struct command *command);

/* ---- ctl_capture.c ---- */
int ctl_run_capture(struct ctl *ctl, const struct command *command);
int ctl_run_capture_stop(struct ctl *ctl, const struct command *command);

/* ---- ctl_trace.c ---- */
int ctl_run_trace(struct ctl *ctl, const struct command *command);

/* ---- ctl_proxy.c ---- */
int ctl_run_backends(struct ctl *ctl, const struct command *command);
int ctl_run_backend(struct ctl *ctl, const struct command *command);
int ctl_run_backend_add(struct ctl *ctl, const struct command *command);
int ctl_run_backend_remove(struct ctl *ctl, const struct command *command);
int ctl_run_backend_weight(struct ctl *ctl, const struct command *command);
int ctl_run_reload(struct ctl *ctl, const struct command *command);
