/*
 * Parses links, as in the option --link.
 */
#include "dpdk_glue/glue.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk_glue/glue_priv.h"

/* What each kind of link accepts; the examples end up in error messages. */
static const struct kind {
	const char *name;
	const char *example;
	size_t name_max; /* bytes; interface names are IFNAMSIZ - 1 */
	unsigned queues_max;
} kinds[] = {
	[GLUE_LINK_MEMIF] = {"memif", "memif:/tmp/e.sock,role=server",
			     GLUE_PATH_MAX - 1, 64},
	[GLUE_LINK_TAP] = {"tap", "tap:coro0", 15, 16},
	[GLUE_LINK_VHOST] = {"vhost", "vhost:/tmp/vhost0.sock",
			     GLUE_PATH_MAX - 1, 8},
	[GLUE_LINK_AF_PACKET] = {"af_packet", "af_packet:eth0", 15, 16},
	[GLUE_LINK_AF_XDP] = {"af_xdp", "af_xdp:eth0", 15, 64},
	[GLUE_LINK_PCI] = {"pci", "pci:0000:03:00.0", 31, 64},
	[GLUE_LINK_PORT] = {"port", "port:net_bonding0", GLUE_PORT_NAME_MAX,
			    64},
	[GLUE_LINK_BOND] = {"bond", "bond:b0,members=tap:a+tap:b", 15, 64},
	[GLUE_LINK_RING] = {"ring", "ring:r0", 15, 1},
	[GLUE_LINK_PCAP] = {"pcap", "pcap:in.pcap,out.pcap", GLUE_PATH_MAX - 1,
			    1},
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

unsigned glue_link_max_queues(const struct glue_link *link)
{
	return kinds[link->kind].queues_max;
}

const char *glue_link_kind_name(enum glue_link_kind kind)
{
	return kinds[kind].name;
}

int glue_fail(char *err, size_t err_len, int code, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(err, err_len, format, ap);
	va_end(ap);
	return code;
}

static int parse_kind(const char *text, struct glue_link *link,
		      const char **rest, char *err, size_t err_len)
{
	size_t len = strcspn(text, ":");

	for (size_t i = 0; i < N_KINDS; i++)
		if (strlen(kinds[i].name) == len &&
		    strncmp(kinds[i].name, text, len) == 0) {
			link->kind = (enum glue_link_kind)i;
			*rest = text[len] ? text + len + 1 : text + len;
			return 0;
		}
	return glue_fail(
		err, err_len, -EINVAL,
		"link '%s': unknown kind '%.*s'; expected one of "
		"memif, tap, vhost, af_packet, af_xdp, pci, port, "
		"bond, ring, pcap, as in memif:/tmp/e.sock,role=server",
		text, (int)len, text);
}

/* Names end up inside comma-separated EAL arguments. */
static int take_name(const char *text, const char *from, size_t len,
		     const struct kind *kind, char *to, char *err,
		     size_t err_len)
{
	if (len == 0)
		return glue_fail(err, err_len, -EINVAL,
				 "link '%s': the name after '%s:' is missing; "
				 "write it as in %s",
				 text, kind->name, kind->example);
	if (len > kind->name_max)
		return glue_fail(err, err_len, -EINVAL,
				 "link '%s': the name has %zu characters, at "
				 "most %zu fit; choose a shorter one",
				 text, len, kind->name_max);
	memcpy(to, from, len);
	to[len] = '\0';
	return 0;
}

/* ---- keys ---- */

static int parse_number(const char *value, int base, unsigned long min,
			unsigned long max, unsigned long *out)
{
	char *end;
	unsigned long n = strtoul(value, &end, base);

	if (*value < '0' || *value > '9' || *end || n < min || n > max)
		return -EINVAL;
	*out = n;
	return 0;
}

/* Returns the index of a word in a list; -EINVAL if it is not there. */
static int parse_word(const char *value, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (strcmp(value, words[i]) == 0)
			return i;
	return -EINVAL;
}

static int parse_role(const char *value, struct glue_link *link)
{
	static const char *const words[] = {"client", "server", NULL};
	int word = parse_word(value, words);

	link->server = word == 1;
	return word;
}

static int parse_mode(const char *value, struct glue_link *link)
{
	unsigned long mode;

	if (parse_number(value, 8, 0600, 0777, &mode) < 0)
		return -EINVAL;
	link->mode = (uint16_t)mode;
	return 0;
}

static int parse_bond_mode(const char *value, struct glue_link *link)
{
	static const char *const words[] = {"active-backup", "802.3ad", NULL};
	int word = parse_word(value, words);

	link->lacp = word == 1;
	return word;
}

static int copy_members(const char *value, struct glue_link *link)
{
	if (strlen(value) >= sizeof(link->name2))
		return -EINVAL;
	strcpy(link->name2, value);
	return 0;
}

static int parse_queue(const char *value, struct glue_link *link)
{
	unsigned long n;

	if (parse_number(value, 10, 64, 16384, &n) < 0 || (n & (n - 1)))
		return -EINVAL;
	link->queue_size = (unsigned)n;
	return 0;
}

static int parse_queues(const char *value, struct glue_link *link)
{
	unsigned long n;

	if (parse_number(value, 10, 1, GLUE_MAX_SHARDS, &n) < 0)
		return -EINVAL;
	link->queues = (unsigned)n;
	return 0;
}

static int parse_vlan(const char *value, struct glue_link *link)
{
	unsigned long n;

	if (parse_number(value, 10, 1, GLUE_VLAN_MAX, &n) < 0)
		return -EINVAL;
	link->vlan = (uint16_t)n;
	return 0;
}

static int parse_csum(const char *value, struct glue_link *link)
{
	static const char *const words[] = {"auto", "hw", "sw", "trust", NULL};
	int word = parse_word(value, words);

	link->csum = (enum glue_csum_mode)word;
	return word;
}

static int parse_tso(const char *value, struct glue_link *link)
{
	static const char *const words[] = {"auto", "on", "off", NULL};
	int word = parse_word(value, words);

	link->tso = (enum glue_tso_mode)word;
	return word;
}

static int parse_mac(const char *value, struct glue_link *link)
{
	unsigned b[6];
	int used = 0;

	if (sscanf(value, "%2x:%2x:%2x:%2x:%2x:%2x%n", &b[0], &b[1], &b[2],
		   &b[3], &b[4], &b[5], &used) != 6 ||
	    value[used] || (b[0] & 1))
		return -EINVAL;
	for (int i = 0; i < 6; i++)
		link->mac[i] = (uint8_t)b[i];
	return 0;
}

#define KIND(kind) (1u << GLUE_LINK_##kind)
#define ALL_KINDS  (~0u)

/* GLUE_LINK_KEYS has the names. parse() returns a negative errno for a wrong
 * value; it may have changed the link, which is given up then. */
static const struct key {
	const char *name, *arg;
	unsigned kinds; /* that have it */
	int (*parse)(const char *value, struct glue_link *link);
	const char *expected;
} keys[] = {
	{"role", "server|client", KIND(MEMIF) | KIND(VHOST), parse_role,
	 "server or client"},
	{"mode", "OCTAL", KIND(MEMIF), parse_mode,
	 "the mode of the server's socket, 600 to 777, as in 660"},
	{"members", "A+B", KIND(BOND), copy_members, "at most 107 characters"},
	{"mode", "active-backup|802.3ad", KIND(BOND), parse_bond_mode,
	 "active-backup or 802.3ad"},
	{"queue", "N", ALL_KINDS, parse_queue,
	 "a power of two from 64 to 16384"},
	{"queues", "N", ALL_KINDS, parse_queues, "a number from 1 to 64"},
	{"vlan", "N", ALL_KINDS, parse_vlan, "a VLAN ID from 1 to 4094"},
	{"csum", "auto|hw|sw|trust", ALL_KINDS, parse_csum,
	 "auto, hw, sw or trust"},
	{"tso", "auto|on|off", ALL_KINDS, parse_tso, "auto, on or off"},
	{"mac", "ADDRESS", ALL_KINDS, parse_mac,
	 "a unicast address such as 02:00:00:00:00:01"},
};
#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

static bool has_key(const struct glue_link *link, const struct key *key)
{
	return key->kinds & 1u << link->kind;
}

static const struct key *find_key(const struct glue_link *link,
				  const char *name)
{
	for (size_t i = 0; i < N_KEYS; i++)
		if (has_key(link, &keys[i]) && strcmp(keys[i].name, name) == 0)
			return &keys[i];
	return NULL;
}

/* "queue=N, vlan=N and mac=ADDRESS"; every kind has the table's last key. */
static void list_keys(const struct glue_link *link, char *text, size_t len)
{
	size_t used = 0;

	for (size_t i = 0; i < N_KEYS && used < len; i++)
		if (has_key(link, &keys[i]))
			used += (size_t)snprintf(text + used, len - used,
						 "%s%s=%s",
						 used == 0	   ? ""
						 : i + 1 == N_KEYS ? " and "
								   : ", ",
						 keys[i].name, keys[i].arg);
}

/* Checks values that are right by themselves, but not for this kind. */
static int check_kind(const char *text, const struct glue_link *link, char *err,
		      size_t err_len)
{
	const struct kind *kind = &kinds[link->kind];

	if (link->queues > kind->queues_max)
		return glue_fail(err, err_len, -EINVAL,
				 "link '%s': queues=%u: %s has at most %u",
				 text, link->queues, kind->name,
				 kind->queues_max);
	if (link->csum == GLUE_CSUM_TRUST &&
	    link->kind != GLUE_LINK_AF_PACKET &&
	    link->kind != GLUE_LINK_AF_XDP && link->kind != GLUE_LINK_BOND)
		return glue_fail(err, err_len, -EINVAL,
				 "link '%s': csum=trust is only for af_packet, "
				 "af_xdp and bond",
				 text);
	return 0;
}

static int parse_key(const char *text, const char *name, const char *value,
		     struct glue_link *link, char *err, size_t err_len)
{
	const struct key *key = find_key(link, name);
	char list[256];

	if (!key) {
		list_keys(link, list, sizeof(list));
		return glue_fail(err, err_len, -EINVAL,
				 "link '%s': unknown key '%s'; %s takes %s",
				 text, name, kinds[link->kind].name, list);
	}
	if (key->parse(value, link) < 0)
		return glue_fail(err, err_len, -EINVAL,
				 "link '%s': %s is '%s'; expected %s", text,
				 name, value, key->expected);
	return check_kind(text, link, err, err_len);
}

static int parse_keys(const char *text, char *words, struct glue_link *link,
		      char *err, size_t err_len)
{
	char *save = NULL;

	for (char *word = strtok_r(words, ",", &save); word;
	     word = strtok_r(NULL, ",", &save)) {
		char *value = strchr(word, '=');
		int rc;

		if (!value)
			return glue_fail(err, err_len, -EINVAL,
					 "link '%s': '%s' has no value; write "
					 "key=value, as in %s",
					 text, word, kinds[link->kind].example);
		*value++ = '\0';
		rc = parse_key(text, word, value, link, err, err_len);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* pcap:IN,OUT names two files before the keys. */
static int parse_second_name(const char *text, const char **rest,
			     struct glue_link *link, char *err, size_t err_len)
{
	size_t len = strcspn(*rest, ",");
	int rc = take_name(text, *rest, len, &kinds[link->kind], link->name2,
			   err, err_len);

	if (rc == 0)
		*rest += len + ((*rest)[len] == ',');
	return rc;
}

/*
 * Accepts [DOMAIN:]BUS:DEVICE.FUNCTION in hexadecimal, with nothing behind it,
 * and adds a missing domain, as sysfs and EAL name the device.
 */
static bool settle_pci_address(char *name, size_t room)
{
	unsigned domain, bus, device, function;
	int used = 0;

	if (sscanf(name, "%4x:%2x:%2x.%1x%n", &domain, &bus, &device, &function,
		   &used) != 4) {
		domain = 0;
		if (sscanf(name, "%2x:%2x.%1x%n", &bus, &device, &function,
			   &used) != 3)
			return false;
	}
	if (used == 0 || name[used] || device > 31 || function > 7)
		return false;
	snprintf(name, room, "%04x:%02x:%02x.%x", domain, bus, device,
		 function);
	return true;
}

/* ---- members of a bond ---- */

/* DPDK gives a member the bond's address, which other drivers refuse. */
static bool can_be_member(const struct glue_link *link)
{
	return link->kind == GLUE_LINK_TAP ||
	       link->kind == GLUE_LINK_AF_PACKET || glue_link_is_port(link);
}

/* Is there a member of the same name among the n before it? */
static bool is_twice(const struct glue_link *links, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (links[i].kind == links[n].kind &&
		    strcmp(links[i].name, links[n].name) == 0)
			return true;
	return false;
}

static int parse_members(const char *text, const struct glue_link *bond,
			 struct glue_link *links, unsigned *n, char *err,
			 size_t err_len)
{
	char names[sizeof(bond->name2)], reason[256], *save = NULL;

	strcpy(names, bond->name2);
	*n = 0;
	for (char *word = strtok_r(names, "+", &save); word;
	     word = strtok_r(NULL, "+", &save), ++*n) {
		int rc;

		if (*n == GLUE_BOND_MEMBERS)
			return glue_fail(err, err_len, -EINVAL,
					 "link '%s': more than %d members",
					 text, GLUE_BOND_MEMBERS);
		rc = glue_link_parse(word, &links[*n], reason, sizeof(reason));
		if (rc < 0)
			return glue_fail(err, err_len, rc, "link '%s': %s",
					 text, reason);
		if (!can_be_member(&links[*n]) || is_twice(links, *n))
			return glue_fail(
				err, err_len, -EINVAL, "link '%s': '%s' %s",
				text, word,
				can_be_member(&links[*n])
					? "is a member already"
					: "takes no other MAC address, as "
					  "a member must; expected tap, "
					  "af_packet, pci or port");
		links[*n].queue_size = bond->queue_size;
		links[*n].queues = bond->queues;
	}
	return 0;
}

static int check_bond(const char *text, struct glue_link *bond, char *err,
		      size_t err_len)
{
	struct glue_link links[GLUE_BOND_MEMBERS];
	unsigned n;
	int rc = parse_members(text, bond, links, &n, err, err_len);

	if (rc < 0)
		return rc;
	if (n < 2)
		return glue_fail(err, err_len, -EINVAL,
				 "link '%s': %u member%s; expected two or "
				 "more, as in members=tap:a+tap:b",
				 text, n, n == 1 ? "" : "s");
	bond->on_ports = true;
	for (unsigned i = 0; i < n; i++)
		bond->on_ports &= glue_link_is_port(&links[i]);
	return 0;
}

unsigned glue_link_parts(const struct glue_link *link, struct glue_link *parts)
{
	char err[GLUE_PATH_MAX];
	unsigned n;

	if (link->kind != GLUE_LINK_BOND) {
		parts[0] = *link;
		return 1;
	}
	if (parse_members("", link, parts, &n, err, sizeof(err)) < 0)
		return 0; /* it was checked when it was read */
	return n;
}

int glue_link_parse(const char *text, struct glue_link *out, char *err,
		    size_t err_len)
{
	struct glue_link link = {0};
	const char *rest = NULL;
	char words[256];
	size_t len;
	int rc;

	rc = parse_kind(text, &link, &rest, err, err_len);
	if (rc < 0)
		return rc;
	len = strcspn(rest, ",");
	rc = take_name(text, rest, len, &kinds[link.kind], link.name, err,
		       err_len);
	if (rc < 0)
		return rc;
	rest += len + (rest[len] == ',');
	if (link.kind == GLUE_LINK_PCI &&
	    !settle_pci_address(link.name, sizeof(link.name)))
		return glue_fail(err, err_len, -EINVAL,
				 "link '%s': expected a PCI address as lspci "
				 "-D writes it, as in %s",
				 text, kinds[link.kind].example);
	if (link.kind == GLUE_LINK_PCAP)
		rc = parse_second_name(text, &rest, &link, err, err_len);
	if (rc < 0)
		return rc;
	if (strlen(rest) >= sizeof(words))
		return glue_fail(err, err_len, -EINVAL,
				 "link '%s': more than %zu characters of keys",
				 text, sizeof(words) - 1);
	strcpy(words, rest);
	rc = parse_keys(text, words, &link, err, err_len);
	if (rc == 0 && link.kind == GLUE_LINK_BOND)
		rc = check_bond(text, &link, err, err_len);
	if (rc == 0)
		*out = link;
	return rc;
}
