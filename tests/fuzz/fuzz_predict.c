/*
 * Each input twice, with header prediction and without, on a stack opened for
 * it: every frame that leaves, and after every round every field of every pcb,
 * must be the same (tests/net/random_differ.c).
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sodium.h>

#include "tests/fuzz/tcp_steps.h"
#include "tests/net/random.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct steps_watch watch = {differ_frame, differ_round};

static struct {
	const uint8_t *data;
	size_t size;
} input;

/* Runs in a new thread, so that its stack holds no bytes of another run. */
static void *run_input(void *arg)
{
	seed_entropy(1);
	steps_open(&watch, !differ_predicts());
	steps_run(input.data, input.size);
	steps_close();
	return NULL;
}

/* side and round: see differ_begin(). */
static void run_round(int side, uint64_t round)
{
	pthread_t thread;

	differ_begin(side, round);
	if (pthread_create(&thread, NULL, run_input, NULL) != 0)
		abort();
	pthread_join(thread, NULL);
}

static void print_round(int side, uint64_t round)
{
	pid_t child = fork();

	if (child == 0) {
		run_round(side, round); /* exits */
		_exit(1);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool begun;
	uint64_t round;

	/* libsodium draws random numbers when it starts: neither run's. */
	if (!begun && (sodium_init() < 0 || !differ_init()))
		abort();
	begun = true;
	input.data = data;
	input.size = size;
	run_round(0, 0);
	run_round(1, 0);
	round = differ_first();
	differ_forget();
	if (!round)
		return 0;
	printf("round %llu is another without prediction\n",
	       (unsigned long long)round);
	fflush(stdout);
	print_round(0, round);
	print_round(1, round);
	abort();
}
