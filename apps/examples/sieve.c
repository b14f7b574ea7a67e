/*
 * sieve.c - prime numbers: a chain of filters over channels, one coroutine a
 * prime. Usage: sieve [LARGEST], 100 by default.
 */
#include <stdio.h>
#include <stdlib.h>

#include <coronet/coro.h>
#include <coronet/coro_chan.h>

static int largest = 100;

struct filter {
	int prime;
	struct coro_chan *in;
	struct coro_chan *out;
};

static void *generate(void *arg)
{
	struct coro_chan *out = arg;

	for (int i = 2; i <= largest; i++)
		coro_chan_send(out, &i);
	coro_chan_close(out);
	return NULL;
}

static void *filter(void *arg)
{
	struct filter *f = arg;
	int n;

	while (coro_chan_recv(f->in, &n) == 0)
		if (n % f->prime != 0)
			coro_chan_send(f->out, &n);
	coro_chan_close(f->out);
	coro_chan_free(f->in);
	free(f);
	return NULL;
}

/* Print the first number that comes, which is prime, and put a filter for it
 * before what comes after. */
static void *primes(void *arg)
{
	struct coro_chan *in = arg;
	int n;

	while (coro_chan_recv(in, &n) == 0) {
		struct filter *f = malloc(sizeof(*f));

		printf("%d\n", n);
		if (!f)
			abort();
		*f = (struct filter){n, in, NULL};
		if (coro_chan_open(sizeof(int), 0, &f->out) < 0)
			abort();
		in = f->out;
		if (coro_spawn(coro_sched_self(), NULL, filter, f, NULL) < 0)
			abort();
	}
	coro_chan_free(in);
	return NULL;
}

int main(int argc, char **argv)
{
	struct coro_sched *s;
	struct coro_chan *ch;
	int err;

	if (argc > 1)
		largest = atoi(argv[1]);
	if (coro_sched_open(NULL, &s) < 0 ||
	    coro_chan_open(sizeof(int), 0, &ch) < 0)
		return 1;
	coro_spawn(s, NULL, generate, ch, NULL);
	coro_spawn(s, NULL, primes, ch, NULL);
	err = coro_sched_run(s);
	coro_sched_close(s);
	return err < 0;
}
