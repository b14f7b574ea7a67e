/*
 * Sites: snapshots of the files that are served, while the files on disk may
 * change. A shard's responses come from the site that it was given last. A
 * response that has begun keeps its site.
 *
 * A separate thread, the loader, checks the files on request and makes the next
 * site, so that no polling thread ever waits for a disk. It also frees sites
 * that no shard uses any more.
 */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "apps/httpd/files.h"

#define SITE_SHARDS_MAX 64

/* A shard's references to a site, which that shard alone uses. */
struct site_share {
	_Alignas(64) unsigned answers; /* responses, and lent bytes */
	struct site_here *here;
};

struct site {
	struct files files;
	struct site *older;  /* used by the loader */
	atomic_uint holders; /* shards that have it, or still answer from it */
	struct site_share on[SITE_SHARDS_MAX];
};

/* The present site of a shard; used by its thread alone. */
struct site_here {
	struct site *site;
	unsigned shard;
};

struct site_loader {
	const char *root;
	unsigned shards; /* shards that use each site */
	struct site *newest;
	_Atomic(struct site *) next; /* made, not yet passed to the shards */
	atomic_uint sites;	     /* number of sites in memory */
	atomic_bool stop;
	bool runs;
	sem_t asked;
	atomic_uint asks, looked; /* number of requests; those completed */
	pthread_t thread;
	char error[sizeof(((struct files *)0)->error)];
	void (*say)(const char *line); /* logs a message; any thread */
};

/*
 * Loads the first site, loader->newest. root, types: as for files_load().
 * Returns 0, or -errno with loader->error set.
 */
int site_open(struct site_loader *loader, const char *root, const char *types,
	      void (*say)(const char *line));
/*
 * Starts the loader's thread, with the CPU affinity of the calling thread.
 * Returns 0 or -errno.
 */
int site_start(struct site_loader *loader);
/* Ends the thread and frees all sites, which are no longer in use. */
void site_close(struct site_loader *loader);

/* Sets how many shards there are, before any has the first site. */
void site_set_shards(struct site_loader *loader, unsigned shards);

/*
 * Requests a check of the files. Returns the number of that check. Any thread;
 * never blocks.
 */
unsigned site_ask(struct site_loader *loader);
/* Returns whether the check of this number, or a later one, has ended. */
bool site_has_looked(const struct site_loader *loader, unsigned look);
/* Returns the next site, to be passed to each shard, or NULL. One thread. */
struct site *site_take_next(struct site_loader *loader);

/* Gives a shard a site; on its thread. */
void site_use(struct site_here *here, struct site *site);

/* The site for a response, until site_put(); on the shard's thread. */
static inline struct site *site_get(struct site_here *here)
{
	here->site->on[here->shard].answers++;
	return here->site;
}

void site_put(struct site_here *here, struct site *site);

/*
 * Keeps the site of a response beyond site_put(): its bytes stay valid until
 * the result is passed to site_give_back(). On the shard's thread.
 */
struct site_share *site_lend(struct site_here *here, struct site *site);
void site_give_back(void *share); /* a net_release */
