/*
 * What test-net-random and test-net-random-shards share: options, seeds, and a
 * process for each life, so that no state is left of the one before, and a
 * crash is a failure of the seed like any other.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/command_line.h"

/* The first member of the struct of a program's options. */
struct lives_opts {
	uint64_t seed; /* of the one life to live; LIVES_ALL: many lives */
	uint64_t from, count;
	bool verbose;
};
#define LIVES_ALL UINT64_MAX

/* Their rows. The program sets `seed` to LIVES_ALL before they are read. */
#define LIVES_ROWS(count_text)                                                 \
	{"seed",                                                               \
	 OPT_NUMBER,                                                           \
	 OPT_AT(struct lives_opts, seed),                                      \
	 "N",                                                                  \
	 NULL,                                                                 \
	 0,                                                                    \
	 INT64_MAX,                                                            \
	 .letter = 's',                                                        \
	 .help = "Live this one life, in this process"},                       \
		{"verbose", OPT_FLAG, OPT_AT(struct lives_opts, verbose),      \
		 .letter = 'v', .help = "Print what is drawn, and segments"},  \
		{"from",                                                       \
		 OPT_NUMBER,                                                   \
		 OPT_AT(struct lives_opts, from),                              \
		 "N",                                                          \
		 "1",                                                          \
		 0,                                                            \
		 INT64_MAX,                                                    \
		 .letter = 'f',                                                \
		 .help = "The first seed; CORONET_SEED is added"},             \
	{                                                                      \
		"count", OPT_NUMBER, OPT_AT(struct lives_opts, count), "N",    \
			count_text, 1, INT64_MAX, .letter = 'n',               \
						  .help = "Number of lives"    \
	}

/* The first seed of many. */
uint64_t lives_first_seed(const struct lives_opts *opts);

/* Returns zeroed memory that processes of lives share; exits without memory. */
void *lives_share(size_t bytes);

/*
 * Calls live() in a process of its own. Returns whether it returned 0 rather
 * than exiting with a failure or by a signal, which is printed with the seed.
 * A life that computes for more than a minute ends as hanging, if `bounded`.
 */
bool lives_run(uint64_t seed, void (*live)(uint64_t seed, void *arg), void *arg,
	       bool bounded);
/*
 * Lives all of opts, each in a process, and the first one twice: *digest, in
 * shared memory, is what live() makes of the life. Stops at a failure, and says
 * how `program` repeats it. Returns how many lives have passed.
 */
uint64_t lives_run_many(const struct lives_opts *opts,
			void (*live)(uint64_t seed, void *arg), bool bounded,
			const uint64_t *digest, const char *program);
