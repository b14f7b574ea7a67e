/*
 * Resolves names on the threads of net_offload(). These have no coroutines, so
 * the C library's resolver uses the kernel's sockets there.
 */
#include "netstack/sockets/whole.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A lookup for another thread, on the heap, with copies of its strings. */
struct question {
	const char *node, *service;
	struct addrinfo hints;
	bool has_hints;
	struct addrinfo *found;
	int rc, err;
	char text[];
};

static void *ask_resolver(void *arg)
{
	struct question *q = arg;

	errno = 0;
	q->rc = net_real()->getaddrinfo(q->node, q->service,
					q->has_hints ? &q->hints : NULL,
					&q->found);
	q->err = errno;
	return NULL;
}

static const char *keep_text(char **at, const char *text)
{
	char *kept = *at;

	if (!text)
		return NULL;
	*at += strlen(text) + 1;
	return strcpy(kept, text);
}

static struct question *question_new(const char *node, const char *service,
				     const struct addrinfo *hints)
{
	size_t bytes = (node ? strlen(node) + 1 : 0) +
		       (service ? strlen(service) + 1 : 0);
	struct question *q = calloc(1, sizeof(*q) + bytes);
	char *at;

	if (!q)
		return NULL;
	at = q->text;
	q->node = keep_text(&at, node);
	q->service = keep_text(&at, service);
	q->has_hints = hints != NULL;
	if (hints)
		q->hints = *hints;
	return q;
}

/* Numbers need no thread. */
static bool is_numeric(const char *node, const char *service,
		       const struct addrinfo *hints, struct addrinfo **out)
{
	struct addrinfo numeric = {0};

	if (hints)
		numeric = *hints;
	numeric.ai_flags |= AI_NUMERICHOST | AI_NUMERICSERV;
	return net_real()->getaddrinfo(node, service, &numeric, out) == 0;
}

NET_HOOK int getaddrinfo(const char *node, const char *service,
			 const struct addrinfo *hints, struct addrinfo **out)
{
	struct question *q;
	int rc, err;

	if (!net_in_coroutine())
		return net_real()->getaddrinfo(node, service, hints, out);
	if (is_numeric(node, service, hints, out))
		return 0;
	q = question_new(node, service, hints);
	if (!q)
		return EAI_MEMORY;
	err = net_offload(ask_resolver, q, NULL, CORO_FOREVER);
	rc = err < 0 ? EAI_SYSTEM : q->rc;
	if (rc == EAI_SYSTEM)
		errno = err < 0 ? -err : q->err;
	if (rc == 0)
		*out = q->found;
	free(q);
	return rc;
}

/* ---- gethostbyname ---- */

#define HOST_BYTES 8192

/* A coroutine's answer, valid until its next question. */
struct host {
	struct hostent entry, *found;
	int family, rc, h_err;
	char *name;
	char buf[HOST_BYTES];
};

static unsigned host_key;
static bool host_key_made;
static pthread_once_t host_once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
	host_key_made = coro_key_create(free, &host_key) == 0;
}

static void *ask_host(void *arg)
{
	struct host *h = arg;

	h->rc = gethostbyname2_r(h->name, h->family, &h->entry, h->buf,
				 sizeof(h->buf), &h->found, &h->h_err);
	return NULL;
}

static struct host *host_here(void)
{
	struct host *h;

	pthread_once(&host_once, make_key);
	h = host_key_made ? coro_local_get(host_key) : NULL;
	if (h || !host_key_made)
		return h;
	h = calloc(1, sizeof(*h));
	if (h && coro_local_set(host_key, h) < 0) {
		free(h);
		h = NULL;
	}
	return h;
}

static struct hostent *host_of(const char *name, int family)
{
	struct host *h = host_here();
	int err = -ENOMEM;

	if (h)
		h->name = strdup(name);
	if (h && h->name) {
		h->family = family;
		h->found = NULL;
		err = net_offload(ask_host, h, NULL, CORO_FOREVER);
		free(h->name);
	}
	if (err < 0)
		errno = -err;
	h_errno = err < 0 ? TRY_AGAIN : h->h_err;
	return err < 0 ? NULL : h->found;
}

NET_HOOK struct hostent *gethostbyname(const char *name)
{
	return net_in_coroutine() ? host_of(name, AF_INET)
				  : net_real()->gethostbyname(name);
}

NET_HOOK struct hostent *gethostbyname2(const char *name, int family)
{
	return net_in_coroutine() ? host_of(name, family)
				  : net_real()->gethostbyname2(name, family);
}

/* ---- reverse lookups ---- */

struct reverse {
	struct sockaddr_storage addr;
	socklen_t len, host_len, service_len;
	char host[NI_MAXHOST], service[NI_MAXSERV];
	int flags, rc, err;
};

static void *ask_reverse(void *arg)
{
	struct reverse *r = arg;

	r->rc = net_real()->getnameinfo((struct sockaddr *)&r->addr, r->len,
					r->host, r->host_len, r->service,
					r->service_len, r->flags);
	r->err = errno;
	return NULL;
}

static int reverse_of(const struct sockaddr *addr, socklen_t len, char *host,
		      socklen_t host_len, char *service, socklen_t service_len,
		      int flags)
{
	struct reverse *r = calloc(1, sizeof(*r));
	int rc, err;

	if (!r)
		return EAI_MEMORY;
	memcpy(&r->addr, addr, len);
	r->len = len;
	r->host_len = host_len < NI_MAXHOST ? host_len : NI_MAXHOST;
	r->service_len = service_len < NI_MAXSERV ? service_len : NI_MAXSERV;
	r->flags = flags;
	err = net_offload(ask_reverse, r, NULL, CORO_FOREVER);
	rc = err < 0 ? EAI_SYSTEM : r->rc;
	if (rc == EAI_SYSTEM)
		errno = err < 0 ? -err : r->err;
	if (rc == 0 && host && host_len)
		memcpy(host, r->host, r->host_len);
	if (rc == 0 && service && service_len)
		memcpy(service, r->service, r->service_len);
	free(r);
	return rc;
}

NET_HOOK int getnameinfo(const struct sockaddr *addr, socklen_t len, char *host,
			 socklen_t host_len, char *service,
			 socklen_t service_len, int flags)
{
	bool numeric = (!host || flags & NI_NUMERICHOST) &&
		       (!service || flags & NI_NUMERICSERV);

	if (!net_in_coroutine() || numeric ||
	    len > sizeof(struct sockaddr_storage))
		return net_real()->getnameinfo(addr, len, host, host_len,
					       service, service_len, flags);
	return reverse_of(addr, len, host, host_len, service, service_len,
			  flags);
}
