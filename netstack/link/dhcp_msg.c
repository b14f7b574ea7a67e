/* Reads and writes messages of DHCP. */
#include "netstack/link/dhcp_msg.h"

#include <errno.h>
#include <string.h>

#include "dpdk_glue/bytes.h"

/* Offsets of the fixed fields (RFC 2131 2). */
enum {
	AT_OP = 0,
	AT_HTYPE = 1,
	AT_HLEN = 2,
	AT_XID = 4,
	AT_SECS = 8,
	AT_CIADDR = 12,
	AT_YIADDR = 16,
	AT_CHADDR = NET_DHCP_MAC_AT,
	AT_SNAME = 44,
	AT_FILE = 108,
	AT_COOKIE = 236,
	AT_OPTIONS = NET_DHCP_FIXED,
};

enum { BOOTREQUEST = 1, BOOTREPLY = 2, ETHERNET = 1 };

enum {
	OPTION_PAD = 0,
	OPTION_MASK = 1,
	OPTION_ROUTERS = 3,
	OPTION_SERVERS = 6,
	OPTION_MTU = 26,
	OPTION_WANTED = 50,
	OPTION_LEASE = 51,
	OPTION_OVERLOAD = 52,
	OPTION_TYPE = 53,
	OPTION_SERVER = 54,
	OPTION_LIST = 55,
	OPTION_MAX_BYTES = 57,
	OPTION_T1 = 58,
	OPTION_T2 = 59,
	OPTION_ROUTES = 121,
	OPTION_END = 255,
};

#define LEAST_MTU 68u /* RFC 2132 5.1 */

static const uint8_t cookie[4] = {99, 130, 83, 99};

/* An address keeps its byte order. */
static uint32_t get_ip(const uint8_t *at)
{
	uint32_t ip;

	memcpy(&ip, at, sizeof(ip));
	return ip;
}

/* ---- options ---- */

/* The parts of a message that hold options. */
struct area {
	const uint8_t *at;
	size_t len;
};
struct areas {
	struct area all[3];
	unsigned n;
};

struct option {
	uint8_t code, len;
	const uint8_t *value;
};

/* Takes the next option: 1; 0: there is none; -EBADMSG: its length is wrong. */
static int next_option(struct area *left, struct option *out)
{
	while (left->len && *left->at == OPTION_PAD) {
		left->at++;
		left->len--;
	}
	if (!left->len || *left->at == OPTION_END)
		return 0;
	if (left->len < 2 || left->at[1] > left->len - 2)
		return -EBADMSG;
	*out = (struct option){left->at[0], left->at[1], left->at + 2};
	left->at += 2u + out->len;
	left->len -= 2u + out->len;
	return 1;
}

/* Checks every length, and finds the overload option if there is one. */
static int check_area(struct area area, uint8_t *overload)
{
	struct option option;
	int rc;

	while ((rc = next_option(&area, &option)) > 0) {
		if (option.code != OPTION_OVERLOAD || !overload)
			continue;
		if (option.len != 1 || option.value[0] < 1 ||
		    option.value[0] > 3)
			return -EBADMSG;
		*overload = option.value[0];
	}
	return rc;
}

/* RFC 2131 4.1: `file` comes before `sname`. */
static int find_areas(const uint8_t *bytes, size_t len, struct areas *out)
{
	uint8_t overload = 0;
	int err;

	out->all[0] = (struct area){bytes + AT_OPTIONS, len - AT_OPTIONS};
	out->n = 1;
	err = check_area(out->all[0], &overload);
	if (overload & 1)
		out->all[out->n++] =
			(struct area){bytes + AT_FILE, AT_COOKIE - AT_FILE};
	if (overload & 2)
		out->all[out->n++] =
			(struct area){bytes + AT_SNAME, AT_FILE - AT_SNAME};
	for (unsigned i = 1; i < out->n && err == 0; i++)
		err = check_area(out->all[i], NULL);
	return err;
}

/*
 * Joins the pieces of an option (RFC 3396). Returns whether it is there; *len:
 * its bytes, which are fewer than those of the message.
 */
static bool join_option(const struct areas *areas, uint8_t code,
			uint8_t to[NET_DHCP_BYTES_MAX], size_t *len)
{
	struct option option;
	bool found = false;

	*len = 0;
	for (unsigned i = 0; i < areas->n; i++) {
		struct area left = areas->all[i];

		while (next_option(&left, &option) > 0) {
			if (option.code != code)
				continue;
			memcpy(to + *len, option.value, option.len);
			*len += option.len;
			found = true;
		}
	}
	return found;
}

/* ---- values ---- */

static int read_mask(const uint8_t *value, size_t len, struct net_dhcp_msg *out)
{
	uint32_t mask = len == 4 ? glue_get32(value) : 0;

	/* Its ones come before its zeros. */
	if (!mask || (~mask & (~mask + 1)))
		return -EBADMSG;
	out->mask_bits = (uint8_t)__builtin_popcount(mask);
	return 0;
}

static int read_ips(const uint8_t *value, size_t len, uint32_t *ips,
		    unsigned max, uint8_t *n)
{
	if (len == 0 || len % 4)
		return -EBADMSG;
	for (; len && *n < max; value += 4, len -= 4)
		ips[(*n)++] = get_ip(value);
	return 0;
}

static int read_routers(const uint8_t *value, size_t len,
			struct net_dhcp_msg *out)
{
	return read_ips(value, len, out->routers, NET_DHCP_ROUTERS,
			&out->n_routers);
}

static int read_servers(const uint8_t *value, size_t len,
			struct net_dhcp_msg *out)
{
	return read_ips(value, len, out->servers, NET_DHCP_SERVERS,
			&out->n_servers);
}

static int read_mtu(const uint8_t *value, size_t len, struct net_dhcp_msg *out)
{
	if (len != 2)
		return -EBADMSG;
	out->mtu = (uint16_t)glue_get16(value);
	return out->mtu < LEAST_MTU ? -EBADMSG : 0;
}

static int read_seconds(const uint8_t *value, size_t len, uint32_t *out)
{
	if (len != 4)
		return -EBADMSG;
	*out = glue_get32(value);
	return *out ? 0 : -EBADMSG;
}

static int read_lease(const uint8_t *value, size_t len,
		      struct net_dhcp_msg *out)
{
	return read_seconds(value, len, &out->lease_s);
}

static int read_t1(const uint8_t *value, size_t len, struct net_dhcp_msg *out)
{
	return read_seconds(value, len, &out->t1_s);
}

static int read_t2(const uint8_t *value, size_t len, struct net_dhcp_msg *out)
{
	return read_seconds(value, len, &out->t2_s);
}

static int read_type(const uint8_t *value, size_t len, struct net_dhcp_msg *out)
{
	if (len != 1 || (value[0] != NET_DHCP_OFFER &&
			 value[0] != NET_DHCP_ACK && value[0] != NET_DHCP_NAK))
		return -EBADMSG;
	out->type = value[0];
	return 0;
}

static int read_server(const uint8_t *value, size_t len,
		       struct net_dhcp_msg *out)
{
	if (len != 4)
		return -EBADMSG;
	out->server = get_ip(value);
	return out->server ? 0 : -EBADMSG;
}

/* RFC 3442: width, as many bytes of the network as it needs, router. */
static int read_routes(const uint8_t *value, size_t len,
		       struct net_dhcp_msg *out)
{
	out->has_routes = true;
	if (len == 0)
		return -EBADMSG;
	while (len) {
		unsigned bits = value[0], bytes = (bits + 7) / 8;
		uint8_t to[4] = {0};

		if (bits > 32 || len < 1u + bytes + 4u)
			return -EBADMSG;
		memcpy(to, value + 1, bytes);
		if (bits % 8)
			to[bytes - 1] &= (uint8_t)(0xff00 >> bits % 8);
		if (out->n_routes < NET_DHCP_ROUTES)
			out->routes[out->n_routes++] = (struct net_dhcp_route){
				.to = get_ip(to),
				.via = get_ip(value + 1 + bytes),
				.bits = (uint8_t)bits};
		value += 1 + bytes + 4;
		len -= 1 + bytes + 4;
	}
	return 0;
}

/* The list that is sent has the same order; RFC 3442 wants 121 before 3. */
static const struct reader {
	uint8_t code;
	int (*read)(const uint8_t *value, size_t len, struct net_dhcp_msg *out);
	bool asked; /* in the list */
} readers[] = {
	{OPTION_TYPE, read_type, false},
	{OPTION_SERVER, read_server, false},
	{OPTION_MASK, read_mask, true},
	{OPTION_ROUTES, read_routes, true},
	{OPTION_ROUTERS, read_routers, true},
	{OPTION_SERVERS, read_servers, true},
	{OPTION_MTU, read_mtu, true},
	{OPTION_LEASE, read_lease, true},
	{OPTION_T1, read_t1, true},
	{OPTION_T2, read_t2, true},
};
#define N_READERS (sizeof(readers) / sizeof(readers[0]))

int net_dhcp_read(const uint8_t *bytes, size_t len, struct net_dhcp_msg *out)
{
	uint8_t value[NET_DHCP_BYTES_MAX];
	struct net_dhcp_msg msg = {0};
	struct areas areas;
	int err;

	if (len < AT_OPTIONS || len > NET_DHCP_BYTES_MAX ||
	    bytes[AT_OP] != BOOTREPLY || bytes[AT_HTYPE] != ETHERNET ||
	    bytes[AT_HLEN] != 6 || memcmp(bytes + AT_COOKIE, cookie, 4) != 0)
		return -EBADMSG;
	err = find_areas(bytes, len, &areas);
	msg.xid = glue_get32(bytes + AT_XID);
	msg.ip = get_ip(bytes + AT_YIADDR);
	memcpy(msg.mac, bytes + AT_CHADDR, sizeof(msg.mac));
	for (unsigned i = 0; i < N_READERS && err == 0; i++)
		if (join_option(&areas, readers[i].code, value, &len))
			err = readers[i].read(value, len, &msg);
	if (err < 0 || !msg.type || !msg.server)
		return -EBADMSG;
	*out = msg;
	return 0;
}

/* ---- writing ---- */

static uint8_t *put_ip(uint8_t *at, uint8_t code, uint32_t ip)
{
	if (!ip)
		return at;
	at[0] = code;
	at[1] = 4;
	memcpy(at + 2, &ip, 4);
	return at + 6;
}

static uint8_t *put_list(uint8_t *at)
{
	uint8_t *len = at + 1;

	*at = OPTION_LIST;
	at += 2;
	for (unsigned i = 0; i < N_READERS; i++)
		if (readers[i].asked)
			*at++ = readers[i].code;
	*len = (uint8_t)(at - len - 1);
	return at;
}

void net_dhcp_write(const struct net_dhcp_out *msg, uint8_t out[NET_DHCP_BYTES])
{
	uint8_t *at = out + AT_OPTIONS;

	memset(out, 0, NET_DHCP_BYTES);
	out[AT_OP] = BOOTREQUEST;
	out[AT_HTYPE] = ETHERNET;
	out[AT_HLEN] = 6;
	glue_put32(out + AT_XID, msg->xid);
	out[AT_SECS] = (uint8_t)(msg->secs >> 8);
	out[AT_SECS + 1] = (uint8_t)msg->secs;
	memcpy(out + AT_CIADDR, &msg->ciaddr, 4);
	memcpy(out + AT_CHADDR, msg->mac, 6);
	memcpy(out + AT_COOKIE, cookie, sizeof(cookie));
	memcpy(at, (uint8_t[]){OPTION_TYPE, 1, msg->type}, 3);
	at = put_ip(at + 3, OPTION_WANTED, msg->wanted);
	at = put_ip(at, OPTION_SERVER, msg->server);
	if (msg->type != NET_DHCP_DECLINE) { /* RFC 2131, table 5 */
		at[0] = OPTION_MAX_BYTES;
		at[1] = 2;
		at[2] = NET_DHCP_BYTES_MAX >> 8;
		at[3] = NET_DHCP_BYTES_MAX & 0xff;
		at = put_list(at + 4);
	}
	*at = OPTION_END;
}
