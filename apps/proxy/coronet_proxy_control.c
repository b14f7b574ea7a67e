/*
 * coronet-ctl's requests to coronet-proxy: its backends, the state that an
 * operator sets for one, changes of their list, and reloads. They run on the
 * control thread, which reads only atomics of a shard.
 *
 * A reload is answered at once with its number, since reading files may take
 * long and other requests wait for the control thread. To learn the result, a
 * client asks with that number until this reload, or a later one, has ended.
 */
#include "apps/proxy/coronet_proxy_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>
#include <coronet/net_control.h>

/* ---- answers ---- */

/* Prints JSON as text; the object is deleted. */
static char *to_text(cJSON *answer)
{
	char *text = cJSON_PrintUnformatted(answer);

	cJSON_Delete(answer);
	return text;
}

__attribute__((format(printf, 1, 2))) static char *
error_text(const char *format, ...)
{
	cJSON *answer = cJSON_CreateObject();
	char text[sizeof(((struct opt_error *)0)->text)];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	cJSON_AddStringToObject(answer, "error", text);
	return to_text(answer);
}

static char *not_running(void)
{
	return error_text("the program is starting or ending; ask again");
}

/* ---- backends ---- */

static void add_addr(cJSON *to, const struct pool_entry *entry)
{
	char text[NET_ADDR_TEXT_MAX];

	if (entry->addr.family)
		net_addr_format(&entry->addr, text, sizeof(text));
	cJSON_AddStringToObject(to, "address", entry->addr.family ? text : "");
}

static void add_number(cJSON *to, const char *key, uint64_t n)
{
	cJSON_AddNumberToObject(to, key, (double)n);
}

static cJSON *backend_json(const struct pool *pool, unsigned i)
{
	const struct pool_entry *entry = &pool->entries[i];
	const struct backend *backend = entry->backend;
	int64_t now_ns = net_clock_ns();
	cJSON *to = cJSON_CreateObject();

	cJSON_AddStringToObject(to, "name", entry->spec.name);
	add_addr(to, entry);
	cJSON_AddStringToObject(
		to, "state",
		backend_state_name((enum backend_state)backend->state));
	cJSON_AddStringToObject(
		to, "health",
		backend_health_name(pool_health(pool, i, now_ns)));
	cJSON_AddBoolToObject(to, "backup", entry->spec.backup);
	add_number(to, "sessions", backend->active);
	add_number(to, "maxconn", entry->spec.maxconn);
	add_number(to, "weight", entry->spec.weight);
	add_number(to, "ramp_percent", pool_ramp_percent(pool, i, now_ns));
	add_number(to, "connects", backend->served);
	add_number(to, "failed", backend->failed);
	add_number(to, "ejections", backend->ejections);
	add_number(to, "sent_bytes", backend->bytes_to);
	add_number(to, "received_bytes", backend->bytes_from);
	return to;
}

static char *show_backends(const char *params, void *arg)
{
	struct proxy_counters total = proxy_total();
	struct pool *pool = proxy_pool_ref();
	cJSON *to, *rows, *queue;

	if (!pool)
		return not_running();
	to = cJSON_CreateObject();
	rows = cJSON_AddArrayToObject(to, "backends");
	for (unsigned i = 0; i < pool->n; i++)
		cJSON_AddItemToArray(rows, backend_json(pool, i));
	queue = cJSON_AddObjectToObject(to, "queue");
	add_number(queue, "waiting", proxy.queue.n);
	add_number(queue, "queued", total.queued);
	add_number(queue, "timeouts", total.queue_timeout);
	add_number(queue, "refused", total.queue_full);
	pool_unref(pool);
	return to_text(to);
}

/* Returns the backend's row as it is now. */
static char *show_backend(const char *name)
{
	struct pool *pool = proxy_pool_ref();
	char *text;
	int i;

	if (!pool)
		return not_running();
	i = pool_find_name(pool, name);
	text = i < 0 ? error_text("there is no backend '%s'; coronet-ctl "
				  "backends lists them",
				  name)
		     : to_text(backend_json(pool, (unsigned)i));
	pool_unref(pool);
	return text;
}

/* The parameters are "NAME" or "NAME,STATE". */
static char *steer_backend(const char *params, void *arg)
{
	char name[BACKEND_NAME_MAX + 1];
	size_t len = params ? strcspn(params, ",") : 0;
	enum backend_state state;

	if (len == 0)
		return error_text("expected NAME, or NAME and drain, ready or "
				  "down");
	if (len >= sizeof(name))
		len = sizeof(name) - 1; /* longer than any */
	memcpy(name, params, len);
	name[len] = '\0';
	if (params[len] == ',') {
		if (backend_state_parse(params + len + 1, &state) < 0)
			return error_text("backend %s: '%s': expected drain, "
					  "ready or down",
					  name, params + len + 1);
		/* A backend that does not exist is noticed below. */
		proxy_backend_set_state(name, state);
	}
	return show_backend(name);
}

/* ---- the list of backends ---- */

/* Adds whether all shards use the list by now, and lets it go. */
static char *finish_change(cJSON *to, struct pool_change *done)
{
	cJSON_AddBoolToObject(to, "applied", done->taken);
	pool_unref(done->pool);
	return to_text(to);
}

/* Returns the row of a backend as it was changed. */
static char *changed_row(const char *name, struct pool_change *done)
{
	int i = pool_find_name(done->pool, name);

	return finish_change(backend_json(done->pool, (unsigned)i), done);
}

/* The parameters are a backend in the form of --to. */
static char *add_backend(const char *params, void *arg)
{
	char name[BACKEND_NAME_MAX];
	struct opt_error error;
	struct pool_change done;

	if (change_add(params ? params : "", name, &done, &error) < 0)
		return error_text("%s", error.text);
	return changed_row(name, &done);
}

static char *remove_backend(const char *params, void *arg)
{
	struct opt_error error;
	unsigned sessions;
	cJSON *to;
	struct pool_change done;

	if (change_remove(params ? params : "", &sessions, &done, &error) < 0)
		return error_text("%s", error.text);
	to = cJSON_CreateObject();
	cJSON_AddStringToObject(to, "removed", params);
	add_number(to, "sessions", sessions);
	return finish_change(to, &done);
}

/* The parameters are "NAME,WEIGHT". */
static char *weigh_backend(const char *params, void *arg)
{
	const char *comma = params ? strchr(params, ',') : NULL;
	char name[BACKEND_NAME_MAX];
	size_t len = comma ? (size_t)(comma - params) : 0;
	struct opt_error error;
	uint64_t weight;
	struct pool_change done;

	if (len == 0)
		return error_text("expected NAME and a weight, as in web1,5");
	if (len >= sizeof(name))
		len = sizeof(name) - 1; /* longer than any */
	memcpy(name, params, len);
	name[len] = '\0';
	if (opt_parse_number(comma + 1, 0, BACKEND_WEIGHT, &weight) < 0)
		return error_text("backend %s: weight '%s': expected a whole "
				  "number from 0 to %u",
				  name, comma + 1, BACKEND_WEIGHT);
	if (change_weight(name, (unsigned)weight, &done, &error) < 0)
		return error_text("%s", error.text);
	return changed_row(name, &done);
}

/* ---- reloads ---- */

static struct {
	pthread_mutex_t lock;
	uint64_t begun, ended; /* readings */
	bool ok;	       /* of the one that ended last */
	char text[640];
} reloads = {.lock = PTHREAD_MUTEX_INITIALIZER};

void reload_begins(void)
{
	pthread_mutex_lock(&reloads.lock);
	reloads.begun++;
	pthread_mutex_unlock(&reloads.lock);
}

void reload_report(bool ok, const char *format, ...)
{
	char text[sizeof(reloads.text)];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	pthread_mutex_lock(&reloads.lock);
	reloads.ok = ok;
	memcpy(reloads.text, text, sizeof(text));
	pthread_mutex_unlock(&reloads.lock);
	net_log("coronet-proxy: %s: %s", ok ? "reloaded" : "reload", text);
}

void reload_ends(void)
{
	pthread_mutex_lock(&reloads.lock);
	reloads.ended = reloads.begun;
	pthread_mutex_unlock(&reloads.lock);
}

/* Returns the number of the next reading, which begins after this request. */
static char *ask_reload(const char *params, void *arg)
{
	cJSON *to = cJSON_CreateObject();

	pthread_mutex_lock(&reloads.lock);
	add_number(to, "number", reloads.begun + 1);
	pthread_mutex_unlock(&reloads.lock);
	proxy_reload();
	return to_text(to);
}

static char *show_reload(const char *params, void *arg)
{
	cJSON *to = cJSON_CreateObject();
	uint64_t number = 0;
	bool done;

	if (params && *params &&
	    opt_parse_number(params, 0, UINT64_MAX, &number) < 0) {
		cJSON_Delete(to);
		return error_text("'%s': expected the number of a reload, such "
				  "as 1",
				  params);
	}
	pthread_mutex_lock(&reloads.lock);
	done = reloads.ended > 0 && reloads.ended >= number;
	cJSON_AddBoolToObject(to, "done", done);
	if (done) {
		cJSON_AddBoolToObject(to, "ok", reloads.ok);
		cJSON_AddStringToObject(to, "text", reloads.text);
	}
	pthread_mutex_unlock(&reloads.lock);
	return to_text(to);
}

int proxy_control_add(void)
{
	int err = net_control_add("/proxy/backends",
				  "Backends: state, health, sessions, weights; "
				  "and the queue",
				  show_backends, NULL);

	if (err == 0)
		err = net_control_add(
			"/proxy/backend",
			"Shows a backend, or sets its state. Parameters: NAME, "
			"or NAME and drain, ready or down",
			steer_backend, NULL);
	if (err == 0)
		err = net_control_add("/proxy/backend.add",
				      "Adds a backend. Parameter: a backend in "
				      "the form of --to",
				      add_backend, NULL);
	if (err == 0)
		err = net_control_add("/proxy/backend.remove",
				      "Removes a backend; its sessions go on. "
				      "Parameter: NAME",
				      remove_backend, NULL);
	if (err == 0)
		err = net_control_add("/proxy/backend.weight",
				      "Sets a backend's weight; 0: no new "
				      "sessions. Parameters: NAME,WEIGHT",
				      weigh_backend, NULL);
	if (err == 0)
		err = net_control_add("/proxy/reload",
				      "Reads the configuration again; the "
				      "answer is the number of this reload",
				      ask_reload, NULL);
	if (err == 0)
		err = net_control_add(
			"/proxy/reload.status",
			"The result of a reload. Parameter: its number",
			show_reload, NULL);
	return err;
}
