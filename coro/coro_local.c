/*
 * coro_local.c - what runs when a coroutine ends: its cleanups, and the
 * destructors of the values that it has stored under keys.
 */
#include "coro_priv.h"

#include <string.h>

/* ---- cleanups ---- */

int coro_cleanup_push(void (*fn)(void *arg), void *arg)
{
	struct coro *co = coro_self();
	struct coro_cleanup *c;
	struct coro_ext *ext;
	uint32_t cap;

	if (!co)
		return -EPERM;
	ext = coro_ext_get(coro_tls_sched, co);
	if (!ext)
		return -ENOMEM;
	c = coro_buf_get(coro_tls_sched, sizeof(*c), &cap);
	if (!c)
		return -ENOMEM;
	*c = (struct coro_cleanup){ext->cleanups, fn, arg};
	ext->cleanups = c;
	return 0;
}

static void cleanup_pop(struct coro_sched *s, struct coro_ext *ext, bool run)
{
	struct coro_cleanup c = *ext->cleanups;

	coro_buf_put(s, ext->cleanups, coro_buf_round(sizeof(c)));
	ext->cleanups = c.next;
	if (run)
		c.fn(c.arg);
}

int coro_cleanup_pop(bool run)
{
	struct coro *co = coro_self();

	if (!co)
		return -EPERM;
	if (!co->ext || !co->ext->cleanups)
		return -ENOENT;
	cleanup_pop(coro_tls_sched, co->ext, run);
	return 0;
}

/* ---- local storage ---- */

#define KEYS 256
/* A destructor may set values again: give it a few turns, as pthread does. */
#define DESTRUCTOR_ROUNDS 4

static void no_destructor(void *value)
{
}

static _Atomic(void (*)(void *)) destructors[KEYS];

int coro_key_create(void (*destructor)(void *value), unsigned *key)
{
	void (*fn)(void *) = destructor ? destructor : no_destructor;

	for (unsigned i = 0; i < KEYS; i++) {
		void (*unused)(void *) = NULL;

		if (atomic_compare_exchange_strong(&destructors[i], &unused,
						   fn)) {
			*key = i;
			return 0;
		}
	}
	return -EAGAIN;
}

int coro_key_delete(unsigned key)
{
	if (key >= KEYS || !destructors[key])
		return -EINVAL;
	destructors[key] = NULL;
	return 0;
}

static int locals_grow(struct coro_sched *s, struct coro_ext *ext,
		       unsigned count)
{
	uint32_t cap;
	void **locals = coro_buf_get(s, count * sizeof(*locals), &cap);

	if (!locals)
		return -ENOMEM;
	memset(locals, 0, cap);
	if (ext->locals) {
		memcpy(locals, ext->locals, ext->nlocals * sizeof(*locals));
		coro_buf_put(s, ext->locals, ext->locals_cap);
	}
	ext->locals = locals;
	ext->locals_cap = cap;
	ext->nlocals = cap / sizeof(*locals);
	return 0;
}

int coro_local_set(unsigned key, void *value)
{
	struct coro *co = coro_self();
	struct coro_ext *ext;
	int err;

	if (!co)
		return -EPERM;
	if (key >= KEYS || !destructors[key])
		return -EINVAL;
	ext = coro_ext_get(coro_tls_sched, co);
	if (!ext)
		return -ENOMEM;
	if (key >= ext->nlocals) {
		err = locals_grow(coro_tls_sched, ext, key + 1);
		if (err < 0)
			return err;
	}
	ext->locals[key] = value;
	return 0;
}

void *coro_local_get(unsigned key)
{
	struct coro *co = coro_self();

	if (!co || !co->ext || key >= co->ext->nlocals)
		return NULL;
	return co->ext->locals[key];
}

static bool locals_destroy(struct coro_ext *ext)
{
	bool any = false;

	for (unsigned i = 0; i < ext->nlocals; i++) {
		void *value = ext->locals[i];
		void (*fn)(void *) = destructors[i];

		if (!value || !fn)
			continue;
		ext->locals[i] = NULL;
		fn(value);
		any = true;
	}
	return any;
}

/* Runs the cleanups of a coroutine that ends, then its locals' destructors. */
void coro_ext_run(struct coro_sched *s, struct coro *co)
{
	struct coro_ext *ext = co->ext;

	while (ext->cleanups)
		cleanup_pop(s, ext, true);
	for (int i = 0; i < DESTRUCTOR_ROUNDS && ext->locals; i++)
		if (!locals_destroy(ext))
			break;
	if (ext->locals)
		coro_buf_put(s, ext->locals, ext->locals_cap);
	ext->locals = NULL;
	ext->nlocals = 0;
}
