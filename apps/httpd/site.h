/*
 * What is served, while the files on disk change: a site is what they were at
 * one moment, and a shard's answers come from the site that it was given last.
 * An answer that has begun keeps the site that it began with.
 *
 * A thread of its own, the loader, looks at the files when it is asked to and
 * makes the next site, so that no polling thread ever waits for a disk. It also
 * frees the sites that no shard has any more.
 */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "apps/httpd/files.h"

#define SITE_SHARDS_MAX 64

/* What a shard has of a site, which that shard alone touches. */
struct site_share {
	_Alignas(64) unsigned answers; /* under way, and bytes that are lent */
	struct site_here *here;
};

struct site {
	struct files files;
	struct site *older;  /* the loader's */
	atomic_uint holders; /* shards that have it or answer from it */
	struct site_share on[SITE_SHARDS_MAX];
};

/* A shard's; touched by its thread alone. */
struct site_here {
	struct site *site;
	unsigned shard;
};

struct site_loader {
	const char *root;
	unsigned shards; /* how many are to have each site */
	struct site *newest;
	_Atomic(struct site *) next; /* made, and not yet given to the shards */
	atomic_uint sites;	     /* that are in memory */
	atomic_bool stop;
	bool runs;
	sem_t asked;
	atomic_uint asks, looked; /* how often; which of them are done */
	pthread_t thread;
	char error[sizeof(((struct files *)0)->error)];
	void (*say)(const char *line); /* of what it has to tell; any thread */
};

/*
 * Loads the first site: newest. types as for files_load(). Returns 0, or
 * -errno with loader->error set.
 */
int site_open(struct site_loader *loader, const char *root, const char *types,
	      void (*say)(const char *line));
/*
 * Starts the thread, with the rights to CPUs of the thread that calls. Returns
 * 0 or -errno.
 */
int site_start(struct site_loader *loader);
/* Ends the thread and frees all sites: nobody may use one any more. */
void site_close(struct site_loader *loader);

/* Before any shard has the first site: how many will have it. */
void site_set_shards(struct site_loader *loader, unsigned shards);

/*
 * Asks the loader to look at the files; which look that is. Any thread; never
 * blocks.
 */
unsigned site_ask(struct site_loader *loader);
/* Whether that look, or a later one, is over. */
bool site_has_looked(const struct site_loader *loader, unsigned look);
/* The next site, to be given to each shard, or NULL. One thread. */
struct site *site_take_next(struct site_loader *loader);

/* Gives a shard a site; on its thread. */
void site_use(struct site_here *here, struct site *site);

/* The site that an answer may come from until site_put(); on its thread. */
static inline struct site *site_get(struct site_here *here)
{
	here->site->on[here->shard].answers++;
	return here->site;
}

void site_put(struct site_here *here, struct site *site);

/*
 * Keeps the site of an answer that is under way for longer: its bytes stay
 * until site_give_back() of what this returns. On the shard's thread.
 */
struct site_share *site_lend(struct site_here *here, struct site *site);
void site_give_back(void *share); /* a net_release */
