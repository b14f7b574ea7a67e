/* Reads the stack's queries and forges the responses of a DNS server. */
#include "tests/net/name_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "netstack/link/link.h"
#include "netstack/resolve/resolve.h"
#include "tests/bytes.h"
#include "tests/net/fake_glue.h"
#include "tests/net/peer.h"

#define HEADER	 12u
#define QUESTION 0xc00c /* a pointer to the question's name */

static _Thread_local bool clock_is_fake;
static char folder[] = "/tmp/coronet-names-XXXXXX";
static char conf_path[64], hosts_path[64], systemd_path[64];

/* c-ares calls it, so that it must be found in the program. */
__attribute__((visibility("default"))) int clock_gettime(clockid_t id,
							 struct timespec *ts)
{
	if (!clock_is_fake)
		return (int)syscall(SYS_clock_gettime, id, ts);
	ts->tv_sec = fake_now_ns / 1000000000;
	ts->tv_nsec = fake_now_ns % 1000000000;
	return 0;
}

/* ---- the files ---- */

static void write_file(const char *path, const char *text)
{
	static int64_t stamp = 1000000000;
	struct timespec times[2] = {{.tv_sec = ++stamp}, {.tv_sec = stamp}};
	FILE *file;

	unlink(path);
	if (!text)
		return;
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

void write_resolv_conf(const char *text)
{
	write_file(conf_path, text);
}

void write_hosts(const char *text)
{
	write_file(hosts_path, text);
}

int names_setup(void **state)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(conf_path, sizeof(conf_path), "%s/resolv.conf", folder);
	snprintf(hosts_path, sizeof(hosts_path), "%s/hosts", folder);
	snprintf(systemd_path, sizeof(systemd_path), "%s/systemd", folder);
	net_resolv_conf_file = conf_path;
	net_hosts_file = hosts_path;
	net_systemd_conf_file = systemd_path;
	write_resolv_conf("nameserver 10.0.0.2\n");
	clock_is_fake = true;
	return udp_setup(state);
}

int names_teardown(void **state)
{
	int err = peer_teardown(state);

	clock_is_fake = false;
	write_resolv_conf(NULL);
	write_hosts(NULL);
	assert_int_equal(rmdir(folder), 0);
	return err;
}

void names_remove_addr(const char *text)
{
	struct net_addr addr;

	assert_int_equal(net_addr_parse_prefix(text, &addr), 0);
	assert_int_equal(net_ifaddr_remove(&stack->ports[0], &addr), 0);
}

/* ---- queries ---- */

void query_read(struct query *out, const uint8_t *data, unsigned len)
{
	const uint8_t *at = data + HEADER;
	char *name = out->name;

	assert_true(len > HEADER + 5);
	out->id = get16(data);
	assert_int_equal(get16(data + 4), 1);
	for (; *at; at += 1 + *at) {
		memcpy(name, at + 1, *at);
		name += *at;
		*name++ = '.';
	}
	name[name == out->name ? 0 : -1] = '\0';
	out->type = get16(at + 1);
	out->question_len = (unsigned)(at + 5 - data) - HEADER;
	if (data != out->d.data)
		memcpy(out->d.data, data, len);
}

bool query_next(struct query *out)
{
	while (datagram_next(&out->d))
		if (!out->d.icmp_type && out->d.to.port == 53) {
			query_read(out, out->d.data, out->d.len);
			return true;
		}
	return false;
}

/* ---- responses ---- */

void response_begin(struct response *r, const struct query *q, unsigned code)
{
	memset(r, 0, sizeof(*r));
	put16(r->data, q->id);
	put16(r->data + 2, 0x8180 | code);
	put16(r->data + 4, 1);
	memcpy(r->data + HEADER, q->d.data + HEADER, q->question_len);
	r->len = HEADER + q->question_len;
}

static void add_record(struct response *r, unsigned counter, unsigned type,
		       uint32_t ttl_s, const void *data, unsigned len)
{
	uint8_t *at = r->data + r->len;

	put16(r->data + counter, get16(r->data + counter) + 1);
	put16(at, QUESTION);
	put16(at + 2, type);
	put16(at + 4, 1);
	put32(at + 6, ttl_s);
	put16(at + 10, len);
	memcpy(at + 12, data, len);
	r->len += 12 + len;
}

void response_add(struct response *r, unsigned type, uint32_t ttl_s,
		  const void *data, unsigned len)
{
	add_record(r, 6, type, ttl_s, data, len);
}

void response_add4(struct response *r, uint32_t ttl_s, const char *address)
{
	uint8_t ip[4];

	assert_int_equal(inet_pton(AF_INET, address, ip), 1);
	response_add(r, DNS_A, ttl_s, ip, 4);
}

void response_add6(struct response *r, uint32_t ttl_s, const char *address)
{
	uint8_t ip[16];

	assert_int_equal(inet_pton(AF_INET6, address, ip), 1);
	response_add(r, DNS_AAAA, ttl_s, ip, 16);
}

void response_add_soa(struct response *r, uint32_t ttl_s, uint32_t minimum_s)
{
	uint8_t soa[22] = {0}; /* two names of the root, five numbers */

	put32(soa + 18, minimum_s);
	add_record(r, 8, DNS_SOA, ttl_s, soa, sizeof(soa));
}

void response_send(const struct query *q, const struct response *r)
{
	struct datagram d = {.from = q->d.to, .to = q->d.from, .len = r->len};

	memcpy(d.data, r->data, r->len);
	datagram_send(&d);
	run_rounds(2);
}

/* ---- lookups ---- */

static void *look_up(void *arg)
{
	struct lookup *l = arg;
	struct net_addr addrs[2 * 16];
	int n;

	l->opts.ttl_s = &l->ttl_s;
	n = net_resolve(stack, l->name, &l->opts, addrs, 2 * 16);
	memcpy(l->addrs, addrs, sizeof(addrs));
	l->result = n;
	l->ended = true;
	return NULL;
}

void lookup_begin(struct lookup *l, const char *name, uint8_t family)
{
	lookup_begin_for(l, name, family, 0);
}

void lookup_begin_for(struct lookup *l, const char *name, uint8_t family,
		      unsigned timeout_ms)
{
	memset(l, 0, sizeof(*l));
	l->name = name;
	l->opts.family = family;
	l->opts.timeout_ms = timeout_ms;
	assert_int_equal(net_spawn(stack, "lookup", look_up, l), 0);
	run_rounds(2);
}

void lookup_check(const struct lookup *l, int expected)
{
	assert_true(l->ended);
	assert_int_equal(l->result, expected);
}

void lookup_check_addr(const struct lookup *l, unsigned i, const char *address)
{
	struct net_addr expected;

	assert_int_equal(net_addr_parse(address, 0, &expected), 0);
	assert_true((int)i < l->result);
	assert_memory_equal(&l->addrs[i], &expected, sizeof(expected));
}
