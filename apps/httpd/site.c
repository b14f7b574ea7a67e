/* Publishes snapshots of the served files to the shards. */
#include "apps/httpd/site.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct site *make_site(void)
{
	struct site *site = aligned_alloc(64, sizeof(struct site));

	if (site)
		memset(site, 0, sizeof(*site));
	return site;
}

static void free_site(struct site *site)
{
	files_free(&site->files);
	free(site);
}

/* Frees the sites before the newest that nobody uses any more. */
static void free_unused(struct site_loader *loader)
{
	struct site **at = &loader->newest->older;

	while (*at) {
		struct site *site = *at;

		if (atomic_load_explicit(&site->holders,
					 memory_order_acquire)) {
			at = &site->older;
			continue;
		}
		*at = site->older;
		free_site(site);
		atomic_fetch_sub(&loader->sites, 1);
	}
}

/* Logs an error once, and again only after another one. */
static void report_once(struct site_loader *loader, const char *error,
			const char *outcome)
{
	char line[sizeof(loader->error) + 64];

	if (strcmp(loader->error, error) == 0)
		return;
	snprintf(loader->error, sizeof(loader->error), "%s", error);
	if (!*error)
		return;
	snprintf(line, sizeof(line), "%s; %s", error, outcome);
	loader->say(line);
}

#define BROKEN_MAX (FILES_PATH_MAX + 64)

/* Says what is wrong with a folder that was read: "" or a line. */
static void format_broken(const struct files *files, char out[BROKEN_MAX])
{
	*out = '\0';
	if (files->n_broken)
		snprintf(out, BROKEN_MAX,
			 "%u names, '%s' for one, cannot be read",
			 files->n_broken, files->broken);
}

/* Makes the next site, if something has changed and the last one was taken. */
static void check_site(struct site_loader *loader)
{
	char broken[BROKEN_MAX], line[96];
	struct site *site;
	int changed;

	free_unused(loader);
	if (atomic_load_explicit(&loader->next, memory_order_acquire))
		return;
	site = make_site();
	if (!site)
		return;
	changed = files_reload(&site->files, &loader->newest->files,
			       loader->root);
	format_broken(&site->files, broken);
	if (changed < 0)
		report_once(loader, site->files.error,
			    "the previous version is served");
	else
		report_once(loader, broken, "they are not served");
	if (changed <= 0) {
		free(site);
		return;
	}
	snprintf(line, sizeof(line),
		 "files below --root have changed: %u paths, %zu bytes",
		 site->files.n, site->files.bytes);
	site->older = loader->newest;
	loader->newest = site;
	atomic_fetch_add(&loader->sites, 1);
	atomic_init(&site->holders, loader->shards);
	loader->say(line);
	atomic_store_explicit(&loader->next, site, memory_order_release);
}

static void *run_loader(void *arg)
{
	struct site_loader *loader = arg;

	for (;;) {
		unsigned asks;

		while (sem_wait(&loader->asked) && errno == EINTR)
			;
		if (atomic_load(&loader->stop))
			return NULL;
		asks = atomic_load(&loader->asks);
		check_site(loader);
		atomic_store(&loader->looked, asks);
	}
}

int site_open(struct site_loader *loader, const char *root, const char *types,
	      void (*say)(const char *line))
{
	struct site *site = make_site();
	int err;

	*loader = (struct site_loader){.root = root, .say = say};
	if (!site) {
		snprintf(loader->error, sizeof(loader->error), "%s",
			 strerror(ENOMEM));
		return -ENOMEM;
	}
	err = files_load(&site->files, root, types);
	if (err < 0) {
		snprintf(loader->error, sizeof(loader->error), "%s",
			 site->files.error);
		free(site);
		return err;
	}
	format_broken(&site->files, loader->error); /* the caller reports it */
	loader->newest = site;
	atomic_init(&loader->sites, 1);
	sem_init(&loader->asked, 0, 0);
	return 0;
}

/* Signals are for the threads of the program that wait for them. */
int site_start(struct site_loader *loader)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* that of --seccomp names a call */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&loader->thread, NULL, run_loader, loader);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	loader->runs = err == 0;
	return -err;
}

void site_close(struct site_loader *loader)
{
	struct site *older;

	if (!loader->newest)
		return;
	if (loader->runs) {
		atomic_store(&loader->stop, true);
		sem_post(&loader->asked);
		pthread_join(loader->thread, NULL);
	}
	for (struct site *site = loader->newest; site; site = older) {
		older = site->older;
		free_site(site);
	}
	sem_destroy(&loader->asked);
	loader->newest = NULL;
}

void site_set_shards(struct site_loader *loader, unsigned shards)
{
	loader->shards = shards;
	atomic_init(&loader->newest->holders, shards);
}

unsigned site_ask(struct site_loader *loader)
{
	unsigned look = atomic_fetch_add(&loader->asks, 1) + 1;
	int waiting = 0;

	sem_getvalue(&loader->asked, &waiting);
	if (waiting == 0)
		sem_post(&loader->asked);
	return look;
}

bool site_has_looked(const struct site_loader *loader, unsigned look)
{
	return (int)(atomic_load(&loader->looked) - look) >= 0;
}

struct site *site_take_next(struct site_loader *loader)
{
	return atomic_exchange_explicit(&loader->next, NULL,
					memory_order_acq_rel);
}

static void let_go(struct site *site)
{
	atomic_fetch_sub_explicit(&site->holders, 1, memory_order_acq_rel);
}

void site_use(struct site_here *here, struct site *site)
{
	struct site *before = here->site;

	here->site = site;
	if (before && before->on[here->shard].answers == 0)
		let_go(before);
}

struct site_share *site_lend(struct site_here *here, struct site *site)
{
	struct site_share *share = &site->on[here->shard];

	share->here = here;
	share->answers++;
	return share;
}

void site_give_back(void *arg)
{
	struct site_share *share = arg, *first = share - share->here->shard;

	site_put(share->here,
		 (struct site *)(void *)((char *)first -
					 offsetof(struct site, on)));
}

void site_put(struct site_here *here, struct site *site)
{
	if (--site->on[here->shard].answers == 0 && site != here->site)
		let_go(site);
}
