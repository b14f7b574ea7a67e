/*
 * net_resolve(): an address, /etc/hosts, the cache, then the servers, for each
 * form of the name that the search list permits.
 */
#include "netstack/resolve/resolve_priv.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "netstack/program/program.h"

#define NS_PER_MS	   INT64_C(1000000)
#define NS_PER_S	   INT64_C(1000000000)
#define TIMEOUT_MS_DEFAULT 10000
#define FAMILIES	   2u

/* A call: lies on the caller's stack, and only the caller uses it. */
struct call {
	struct net_resolver *resolver;
	struct net_addr *out;
	unsigned n_max, n;
	uint16_t port;
	bool wants4, wants6;
	int64_t deadline_ns;
	unsigned ttl_s;
};

static void add_address(struct call *call, const struct net_addr *addr)
{
	if (call->n == call->n_max)
		return;
	call->out[call->n] = *addr;
	call->out[call->n++].port = call->port;
}

/* ---- one family of one name ---- */

/*
 * Starts a query unless the entry is valid or one is open. A cleanup of the
 * coroutine drops the reference to the entry.
 */
static int begin_family(struct call *call, const char *text, uint8_t family,
			struct net_name **out, unsigned *answers)
{
	struct net_name *name;
	int err = net_name_get(&call->resolver->cache, text, family, &name);

	if (err < 0)
		return err;
	*answers = name->answers;
	if (!name->asked) {
		if (name->answers && net_here()->now_ns < name->expires_ns)
			--*answers;
		else
			err = net_query_start(call->resolver, name);
	}
	if (err == 0)
		err = coro_cleanup_push(net_name_put, name);
	if (err == 0)
		*out = name;
	else
		net_name_put(name);
	return err;
}

static int wait_family(struct net_name *name, unsigned answers,
		       int64_t deadline_ns)
{
	int err = 0;

	while (err == 0 && name->answers == answers)
		err = coro_sem_wait_until(&name->answered, deadline_ns);
	return err;
}

static int take_family(struct call *call, const struct net_name *name)
{
	struct net_addr addr = {.family = name->family,
				.prefix_len = name->family == 4 ? 32 : 128};
	int64_t left_ns = name->expires_ns - net_here()->now_ns;
	int64_t left_s = (left_ns + NS_PER_S - 1) / NS_PER_S;

	if (name->err < 0)
		return name->err;
	if (left_s < call->ttl_s)
		call->ttl_s = left_s > 0 ? (unsigned)left_s : 0;
	for (unsigned i = 0; i < name->n; i++) {
		memcpy(addr.ip, name->addrs[i], name->family == 4 ? 4 : 16);
		add_address(call, &addr);
	}
	return 0;
}

/* ---- one name ---- */

int net_resolve_error(int a, int b)
{
	if (a == 0 || a == -ENOENT)
		return b ? b : a;
	if (b == 0 || b == -ENOENT)
		return a;
	return a == -ENODATA ? b : a;
}

/* Asks for both families at the same time. Addresses of one are enough. */
static int ask_name(struct call *call, const char *text)
{
	struct net_name *found[FAMILIES] = {NULL, NULL};
	const bool wanted[FAMILIES] = {call->wants6, call->wants4};
	unsigned answers[FAMILIES];
	int err, result = 0;

	for (unsigned i = 0; i < FAMILIES; i++) {
		err = wanted[i] ? begin_family(call, text, i ? 4 : 6, &found[i],
					       &answers[i])
				: 0;
		result = net_resolve_error(result, err);
	}
	for (unsigned i = 0; i < FAMILIES; i++) {
		if (!found[i])
			continue;
		err = wait_family(found[i], answers[i], call->deadline_ns);
		if (err == 0)
			err = take_family(call, found[i]);
		result = net_resolve_error(result, err);
	}
	for (unsigned i = 0; i < FAMILIES; i++)
		if (found[i])
			coro_cleanup_pop(true);
	return call->n ? 0 : result;
}

/* Returns whether another form of the name may be tried. */
static bool has_no_address(int err)
{
	return err == -ENOENT || err == -ENODATA;
}

static int ask_in_domain(struct call *call, const char *text,
			 const char *domain)
{
	char whole[NET_NAME_BYTES];
	size_t len = strlen(text), domain_len = strlen(domain);

	if (len + 1 + domain_len >= sizeof(whole))
		return -ENOENT;
	memcpy(whole, text, len);
	whole[len] = '.';
	memcpy(whole + len + 1, domain, domain_len + 1);
	return ask_name(call, whole);
}

static int ask_domains(struct call *call, const char *text)
{
	const struct net_resolv_conf *conf = &call->resolver->conf;
	int result = -ENOENT;

	for (unsigned i = 0; i < conf->n_search; i++) {
		int err = ask_in_domain(call, text, conf->search[i]);

		if (!has_no_address(err))
			return err;
		result = net_resolve_error(result, err);
	}
	return result;
}

static unsigned count_dots(const char *text)
{
	unsigned n = 0;

	for (; *text; text++)
		n += *text == '.';
	return n;
}

/* Asks for a name by the search list, in the order of resolv.conf(5). */
static int ask_servers(struct call *call, const char *text, bool absolute)
{
	bool first = absolute || count_dots(text) >= call->resolver->conf.ndots;
	int err = first ? ask_name(call, text) : ask_domains(call, text), then;

	if (absolute || !has_no_address(err))
		return err;
	then = first ? ask_domains(call, text) : ask_name(call, text);
	return has_no_address(then) ? net_resolve_error(err, then) : then;
}

/* ---- the call ---- */

/* Returns whether an address of the stack reaches hosts beyond its own link. */
static bool is_wide(const struct net_ifaddr *addr, uint8_t family)
{
	if (!addr->active)
		return false;
	return IP_IS_V6(&addr->ip)
		       ? family == 6 &&
				 !ip6_addr_islinklocal(ip_2_ip6(&addr->ip))
		       : family == 4;
}

bool net_resolve_wants(uint8_t family, uint8_t asked)
{
	bool found = false;

	if (asked)
		return family == asked;
	for (unsigned i = 0; i < net_here()->n_addrs; i++)
		found |= is_wide(&net_here()->addrs[i], family);
	return found;
}

/* Returns 1 if the name is an address, -ENODATA if that has another family, or
 * 0. */
static int read_number(struct call *call, const char *name, uint8_t family)
{
	struct net_word word = {name, strnlen(name, NET_NAME_BYTES)};
	struct net_addr addr;

	if (!word.len || !net_word_addr(&word, &addr))
		return 0;
	if (family && addr.family != family)
		return -ENODATA;
	add_address(call, &addr);
	return 1;
}

/* No server is asked for these (RFC 6761 6.3). */
static bool is_localhost(const char *text)
{
	static const char word[] = "localhost";
	size_t len = strlen(text), tail = sizeof(word) - 1;

	return len >= tail && strcmp(text + len - tail, word) == 0 &&
	       (len == tail || text[len - tail - 1] == '.');
}

static bool find_in_hosts(struct call *call, const char *text, uint8_t family)
{
	struct net_addr found[NET_RESOLVE_ADDRS];
	unsigned n = net_hosts_find(&call->resolver->hosts, text, family, found,
				    NET_RESOLVE_ADDRS);

	for (uint8_t wanted = 6; wanted >= 4; wanted -= 2)
		for (unsigned i = 0; i < n; i++)
			if (found[i].family == wanted)
				add_address(call, &found[i]);
	return n != 0;
}

static int resolve_name(struct call *call, const char *name, uint8_t family)
{
	size_t len = strnlen(name, NET_NAME_BYTES + 1);
	char text[NET_NAME_BYTES];
	int err;

	if (!net_name_copy(name, len, text))
		return -EINVAL;
	err = net_resolver_get(&call->resolver);
	if (err < 0)
		return err;
	if (find_in_hosts(call, text, family))
		return 0;
	if (is_localhost(text))
		return -ENOENT;
	if (!coro_self())
		return -EPERM;
	if (!call->wants4 && !call->wants6)
		return -EADDRNOTAVAIL;
	err = net_resolver_refresh(call->resolver);
	if (err < 0)
		return err;
	call->ttl_s = TTL_MAX_S;
	return ask_servers(call, text, name[len - 1] == '.');
}

int net_resolve(struct net_stack *stack, const char *name,
		const struct net_resolve_opts *opts, struct net_addr *out,
		unsigned n)
{
	static const struct net_resolve_opts defaults;
	struct call call = {.out = out, .n_max = n, .ttl_s = UINT_MAX};
	unsigned timeout_ms;
	int err;

	NET_CHECK_STACK(stack);
	opts = opts ? opts : &defaults;
	if (!stack || !name || !out || n == 0 ||
	    (opts->family && opts->family != 4 && opts->family != 6))
		return -EINVAL;
	timeout_ms = opts->timeout_ms ? opts->timeout_ms : TIMEOUT_MS_DEFAULT;
	call.port = opts->port;
	call.deadline_ns = stack->now_ns + timeout_ms * NS_PER_MS;
	call.wants4 = net_resolve_wants(4, opts->family);
	call.wants6 = net_resolve_wants(6, opts->family);
	err = read_number(&call, name, opts->family);
	if (err == 0)
		err = resolve_name(&call, name, opts->family);
	if (err < 0)
		return err;
	if (opts->ttl_s)
		*opts->ttl_s = call.ttl_s;
	return (int)call.n;
}
