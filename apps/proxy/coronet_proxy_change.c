/*
 * Changes of the list of backends by coronet-ctl: a backend joins, leaves, or
 * gets another weight. Each change makes a pool from the current one, with the
 * checks that --to has, and publishes it to all shards.
 *
 * The options that were read stay as they are, so that a reload, which makes
 * its pool from them alone, can log the changes that it undoes.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "apps/proxy/coronet_proxy_tls.h"

/* The control thread waits for another change, as it waits for a shard. */
#define WAIT_NS (2 * OPT_NS_PER_S)

struct change {
	const char *name; /* or what --to takes */
	unsigned weight;
	char *added;	   /* the name of a backend that joins */
	unsigned sessions; /* of one that leaves */
	struct opt_error *error;
};

/* ---- the list ---- */

/* Copies the options, with the backends of a pool. NULL: no memory. */
static struct proxy_opts *copy_opts(const struct proxy_opts *from,
				    const struct pool *pool)
{
	struct proxy_opts *opts = malloc(sizeof(*opts));

	if (!opts)
		return NULL;
	*opts = *from;
	opts->n_backends = pool->n;
	for (unsigned i = 0; i < pool->n; i++) {
		opts->specs[i] = pool->entries[i].spec;
		opts->backends[i] = pool->entries[i].spec.end;
		opts->backend_texts[i] = pool->entries[i].spec.name;
	}
	return opts;
}

static int build_pool(const struct proxy_opts *opts, const struct pool *old,
		      struct pool **out)
{
	*out = pool_build(opts->specs, opts->n_backends, &old->rules, old,
			  net_clock_ns());
	return *out ? 0 : -ENOMEM;
}

static int find_backend(const struct pool *pool, const struct change *change)
{
	int i = pool_find_name(pool, change->name);

	if (i >= 0)
		return i;
	opt_fail(change->error,
		 "there is no backend '%s'; coronet-ctl backends lists them",
		 change->name);
	return -ENOENT;
}

/*
 * Finds the backend of a change, and copies the options with all backends.
 * Returns its index, with *opts to be freed by free(); or a negative errno.
 */
static int begin_change(const struct proxy_config *config,
			const struct pool *old, const struct change *change,
			struct proxy_opts **opts)
{
	int i = find_backend(old, change);

	if (i < 0)
		return i;
	*opts = copy_opts(&config->opts, old);
	return *opts ? i : -ENOMEM;
}

/* ---- the three changes ---- */

static int read_backend(struct proxy_config *config, struct proxy_opts *opts,
			const struct change *change)
{
	struct opt_error *error = change->error;
	int err = opt_try(&proxy_opts, "to", change->name, "", opts, error);

	if (err == 0)
		err = opt_try(&proxy_opts, NULL, NULL, "", opts, error);
	if (err == 0)
		err = config_refuse_own(opts, error);
	if (err == 0)
		err = proxy_tls_prepare(
			config, &opts->specs[opts->n_backends - 1], error);
	return err;
}

static int add_backend(struct proxy_config *config, const struct pool *old,
		       void *arg, struct pool **out)
{
	struct change *change = arg;
	struct proxy_opts *opts = copy_opts(&config->opts, old);
	int err = opts ? read_backend(config, opts, change) : -ENOMEM;

	if (err == 0) {
		strcpy(change->added, opts->specs[opts->n_backends - 1].name);
		err = build_pool(opts, old, out);
	}
	free(opts);
	return err;
}

static int remove_backend(struct proxy_config *config, const struct pool *old,
			  void *arg, struct pool **out)
{
	struct change *change = arg;
	struct proxy_opts *opts;
	int i = begin_change(config, old, change, &opts), err;

	if (i < 0)
		return i;
	if (old->n == 1) {
		free(opts);
		return opt_fail(change->error,
				"backend %s is the only one: expected another "
				"one first, or backend %s drain",
				change->name, change->name);
	}
	opts->n_backends--;
	memmove(&opts->specs[i], &opts->specs[i + 1],
		(opts->n_backends - (unsigned)i) * sizeof(opts->specs[0]));
	err = build_pool(opts, old, out);
	if (err == 0)
		change->sessions = old->entries[i].backend->active;
	free(opts);
	return err;
}

static int set_weight(struct proxy_config *config, const struct pool *old,
		      void *arg, struct pool **out)
{
	struct change *change = arg;
	struct proxy_opts *opts;
	int i = begin_change(config, old, change, &opts), err;

	if (i < 0)
		return i;
	opts->specs[i].weight = change->weight;
	err = build_pool(opts, old, out);
	free(opts);
	return err;
}

/* ---- calls ---- */

static int run_change(config_pool_fn *fn, struct change *change,
		      struct pool_change *out)
{
	int err;

	change->error->text[0] = '\0';
	err = config_change_pool(fn, change, WAIT_NS, out);
	if (err == 0 || change->error->text[0])
		return err;
	opt_fail(change->error, "%s",
		 err == -EBUSY ? "a reload, or another change, is being "
				 "applied; ask again"
		 : err == -ESHUTDOWN
			 ? "the program is starting or ending; ask again"
			 : strerror(-err));
	return err;
}

int change_add(const char *text, char name[BACKEND_NAME_MAX],
	       struct pool_change *out, struct opt_error *error)
{
	struct change change = {.name = text, .added = name, .error = error};
	int err = run_change(add_backend, &change, out);

	if (err < 0)
		return err;
	net_log("coronet-proxy: backend %s: added by coronet-ctl", name);
	names_look();
	return 0;
}

int change_remove(const char *name, unsigned *sessions, struct pool_change *out,
		  struct opt_error *error)
{
	struct change change = {.name = name, .error = error};
	int err = run_change(remove_backend, &change, out);

	if (err < 0)
		return err;
	*sessions = change.sessions;
	net_log("coronet-proxy: backend %s: removed by coronet-ctl; %u "
		"sessions go on",
		name, *sessions);
	return 0;
}

int change_weight(const char *name, unsigned weight, struct pool_change *out,
		  struct opt_error *error)
{
	struct change change = {.name = name, .weight = weight, .error = error};
	int err = run_change(set_weight, &change, out);

	if (err == 0)
		net_log("coronet-proxy: backend %s: weight set to %u", name,
			weight);
	return err;
}

/* ---- a reload ---- */

static const struct backend_spec *find_spec(const struct proxy_opts *opts,
					    const struct backend *backend)
{
	for (unsigned i = 0; i < opts->n_backends; i++) {
		const struct backend_spec *spec = &opts->specs[i];

		if (strcmp(spec->name, backend->name) == 0 &&
		    strcmp(spec->host, backend->host) == 0 &&
		    spec->port == backend->port)
			return spec;
	}
	return NULL;
}

/* Logs what becomes of a backend that coronet-ctl has added or weighted. */
static unsigned log_entry(const struct proxy_opts *before,
			  const struct pool_entry *entry,
			  const struct pool *new)
{
	const struct backend_spec *spec = find_spec(before, entry->backend);
	const char *name = entry->spec.name;
	int i = pool_find(new, entry->backend);

	if (spec && spec->weight == entry->spec.weight)
		return 0;
	if (i < 0 && !spec) {
		net_log("coronet-proxy: reload: backend %s, added by "
			"coronet-ctl, is removed",
			name);
		return 1;
	}
	if (i < 0 || new->entries[i].spec.weight == entry->spec.weight)
		return 0;
	net_log("coronet-proxy: reload: backend %s: weight %u, set by "
		"coronet-ctl, is now %u",
		name, entry->spec.weight, new->entries[i].spec.weight);
	return 1;
}

unsigned change_log_undone(const struct proxy_opts *before,
			   const struct pool *old, const struct pool *new)
{
	unsigned n = 0;

	for (unsigned i = 0; i < old->n; i++)
		n += log_entry(before, &old->entries[i], new);
	for (unsigned i = 0; i < new->n; i++) {
		const struct backend *backend = new->entries[i].backend;

		if (!find_spec(before, backend) || pool_find(old, backend) >= 0)
			continue;
		n++;
		net_log("coronet-proxy: reload: backend %s, removed by "
			"coronet-ctl, is back",
			backend->name);
	}
	return n;
}
