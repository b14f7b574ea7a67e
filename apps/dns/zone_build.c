/*
 * Lays out the answers of a zone when it is loaded: for each name and type the
 * records, the chain of CNAMEs, the addresses of name servers and mail hosts,
 * the SOA of a negative answer, compressed (RFC 1035 4.1.4).
 */
#include "apps/dns/zone_priv.h"

#include <errno.h>
#include <string.h>

#define POINTER	     0xc000u
#define POINTER_MAX  0x3fffu
#define LABELS_NOTED 128  /* that later names may point to */
#define ADDRESSED    64	  /* targets whose addresses are added */
#define FIXUPS_MAX   2048 /* further names are not compressed */

enum section { ANSWER, AUTHORITY, ADDITIONAL };

/* The answer that is being laid out. */
struct layout {
	const struct zone *zone;
	const struct zone_node *base; /* the question's name */
	bool exact;		      /* and it is always that */
	bool overflow;
	uint16_t flags;
	uint16_t counts[3];
	size_t len, needed_len;
	uint16_t needed_additional;
	unsigned n_fixups, n_noted, n_addressed;
	uint16_t fixups[FIXUPS_MAX];
	struct {
		const uint8_t *name; /* from that label on */
		uint16_t at;	     /* in the message */
	} noted[LABELS_NOTED];
	const struct zone_node *addressed[ADDRESSED];
	uint8_t body[ZONE_ANSWER_MAX];
};

/* ---- names ---- */

static size_t name_len(const uint8_t *name)
{
	size_t len = 1;

	for (; *name; name += 1 + *name)
		len += 1u + *name;
	return len;
}

/* Lengths of labels are below 'A', so that all bytes are compared alike. */
static bool names_equal(const uint8_t *a, const uint8_t *b)
{
	size_t len = name_len(a);

	if (len != name_len(b))
		return false;
	for (size_t i = 0; i < len; i++)
		if (dns_lower(a[i]) != dns_lower(b[i]))
			return false;
	return true;
}

static bool is_wildcard(const uint8_t *name)
{
	return name[0] == 1 && name[1] == '*';
}

static size_t body_at(const struct layout *l)
{
	return DNS_HEADER_BYTES + l->base->name_len + 4u + l->len;
}

/* Returns where the message has that name already, or 0. */
static unsigned find_name(const struct layout *l, const uint8_t *name)
{
	const uint8_t *base = l->base->name;

	/* What a wildcard stands for is not known yet. */
	if (is_wildcard(base) && !l->exact)
		base += 2;
	for (; *base; base += 1 + *base)
		if (names_equal(base, name))
			return DNS_HEADER_BYTES +
			       (unsigned)(base - l->base->name);
	for (unsigned i = 0; i < l->n_noted; i++)
		if (names_equal(l->noted[i].name, name))
			return l->noted[i].at;
	return 0;
}

static void put_bytes(struct layout *l, const void *bytes, size_t n)
{
	if (ZONE_ANSWER_MAX - l->len < n) {
		l->overflow = true;
		return;
	}
	memcpy(l->body + l->len, bytes, n);
	l->len += n;
}

static void layout_put16(struct layout *l, unsigned value)
{
	uint8_t bytes[2];

	dns_put16(bytes, value);
	put_bytes(l, bytes, 2);
}

static void layout_put32(struct layout *l, uint32_t value)
{
	layout_put16(l, value >> 16);
	layout_put16(l, value & 0xffff);
}

/* A question may be longer than the base by the length of a name. */
static bool may_point(const struct layout *l, unsigned at)
{
	return at && at + DNS_NAME_MAX <= POINTER_MAX &&
	       (l->exact || l->n_fixups < FIXUPS_MAX);
}

static void note_label(struct layout *l, const uint8_t *name)
{
	if (l->n_noted == LABELS_NOTED ||
	    body_at(l) + DNS_NAME_MAX > POINTER_MAX)
		return;
	l->noted[l->n_noted].name = name;
	l->noted[l->n_noted++].at = (uint16_t)body_at(l);
}

/* name: stays valid while the answer is laid out. */
static void put_name(struct layout *l, const uint8_t *name)
{
	for (; *name; name += 1 + *name) {
		unsigned at = find_name(l, name);

		if (may_point(l, at)) {
			if (!l->exact)
				l->fixups[l->n_fixups++] = (uint16_t)l->len;
			layout_put16(l, POINTER | at);
			return;
		}
		note_label(l, name);
		put_bytes(l, name, 1u + *name);
	}
	put_bytes(l, "", 1);
}

/* ---- records ---- */

/* Writes data whose names may be compressed (RFC 3597 4). */
static void put_rdata(struct layout *l, uint16_t type,
		      const struct zone_record *record)
{
	const uint8_t *rdata = record->rdata;
	unsigned names = 1, before = 0, done;

	if (type == DNS_MX)
		before = 2;
	else if (type == DNS_SOA)
		names = 2;
	else if (type != DNS_NS && type != DNS_CNAME && type != DNS_PTR)
		names = 0;
	put_bytes(l, rdata, before);
	for (done = before; names > 0; names--) {
		put_name(l, rdata + done);
		done += (unsigned)name_len(rdata + done);
	}
	put_bytes(l, rdata + done, record->len - done);
}

/* owner: NULL: the question's name. */
static void put_set(struct layout *l, enum section section,
		    const uint8_t *owner, const struct zone_set *set)
{
	for (const struct zone_record *r = set->records; r; r = r->next) {
		size_t len_at;

		if (owner)
			put_name(l, owner);
		else
			layout_put16(l, POINTER | DNS_HEADER_BYTES);
		layout_put16(l, set->type);
		layout_put16(l, DNS_IN);
		layout_put32(l, set->ttl);
		len_at = l->len;
		layout_put16(l, 0);
		put_rdata(l, set->type, r);
		if (l->overflow)
			return;
		dns_put16(l->body + len_at, (unsigned)(l->len - len_at - 2));
		l->counts[section]++;
	}
}

static const struct zone_node *apex_of(const struct zone *zone)
{
	return zone_find(zone, zone->apex.hash[0], zone->apex.wire,
			 zone->apex.len);
}

/* The SOA of a negative answer, whose TTL is the shorter one (RFC 2308 3). */
static void put_soa(struct layout *l)
{
	struct zone_set soa = *zone_node_set(apex_of(l->zone), DNS_SOA);
	const uint8_t *minimum = soa.records->rdata + soa.records->len - 4;
	uint32_t ttl =
		(uint32_t)dns_get16(minimum) << 16 | dns_get16(minimum + 2);

	if (ttl < soa.ttl)
		soa.ttl = ttl;
	put_set(l, AUTHORITY, l->zone->apex.wire, &soa);
}

/* Finds the deepest node of a name in the zone; *exact: it is that name. */
static const struct zone_node *
find_deepest(const struct zone *zone, const struct dns_name *name, bool *exact)
{
	unsigned last = name->n_labels - zone->apex.n_labels;

	for (unsigned i = 0; i <= last; i++) {
		unsigned at = name->label_at[i];
		const struct zone_node *node = zone_find(
			zone, name->hash[i], name->wire + at, name->len - at);

		*exact = i == 0;
		if (node)
			return node;
	}
	return NULL;
}

static bool is_new(struct layout *l, const struct zone_node *node)
{
	for (unsigned i = 0; i < l->n_addressed; i++)
		if (l->addressed[i] == node)
			return false;
	if (l->n_addressed == ADDRESSED)
		return false;
	l->addressed[l->n_addressed++] = node;
	return true;
}

/* Adds the addresses of the names that a set of NS, MX or SRV has. */
static void put_addresses(struct layout *l, const struct zone_set *set,
			  bool glue)
{
	unsigned at = set->type == DNS_MX ? 2 : set->type == DNS_SRV ? 6 : 0;

	for (const struct zone_record *r = set->records; r; r = r->next) {
		const struct zone_node *node;
		const struct zone_set *a, *aaaa;
		struct dns_name name;
		bool exact = false;

		if (dns_name_read(r->rdata + at, r->len - at, &name) == 0 ||
		    !zone_has_name(l->zone, &name))
			continue;
		node = find_deepest(l->zone, &name, &exact);
		if (!exact || (node->cut && !glue) || !is_new(l, node))
			continue;
		a = zone_node_set(node, DNS_A);
		aaaa = zone_node_set(node, DNS_AAAA);
		if (a)
			put_set(l, ADDITIONAL, r->rdata + at, a);
		if (aaaa)
			put_set(l, ADDITIONAL, r->rdata + at, aaaa);
	}
}

/* ---- answers ---- */

static void layout_begin(struct layout *l, const struct zone_node *base,
			 bool exact)
{
	l->base = base;
	l->exact = exact;
	l->overflow = false;
	l->flags = DNS_AA;
	memset(l->counts, 0, sizeof(l->counts));
	l->len = 0;
	l->n_fixups = l->n_noted = l->n_addressed = 0;
}

/* Marks all that was written so far: an answer without it is truncated. */
static void mark_needed(struct layout *l)
{
	l->needed_len = l->len;
	l->needed_additional = l->counts[ADDITIONAL];
}

static int too_large(struct zone_builder *b, const struct layout *l)
{
	char text[ZONE_NAME_TEXT];

	snprintf(b->error, ZONE_ERROR_MAX, ZONE_TOO_LARGE,
		 zone_name_text(l->base->name, text));
	return -EMSGSIZE;
}

/* Copies the answer to the zone's memory. */
static int store_answer(struct zone_builder *b, const struct layout *l,
			uint16_t type, const struct zone_answer **out)
{
	struct zone_answer *answer;
	uint16_t *fixups;
	uint8_t *body;

	if (l->overflow)
		return too_large(b, l);
	answer = arena_alloc(&b->zone->arena, sizeof(*answer));
	fixups = arena_alloc(&b->zone->arena, l->n_fixups * sizeof(*fixups));
	body = arena_alloc(&b->zone->arena, l->len);
	if (!answer || !fixups || !body)
		return -ENOMEM;
	memcpy(fixups, l->fixups, l->n_fixups * sizeof(*fixups));
	memcpy(body, l->body, l->len);
	*answer = (struct zone_answer){
		.type = type,
		.flags = l->flags,
		.counts = {l->counts[0], l->counts[1], l->counts[2]},
		.len = (uint16_t)l->len,
		.needed_len = (uint16_t)l->needed_len,
		.needed_additional = l->needed_additional,
		.n_fixups = (uint16_t)l->n_fixups,
		.base_len = l->base->name_len,
		.fixups = fixups,
		.body = body,
	};
	*out = answer;
	return 0;
}

static void put_negative(struct layout *l, uint16_t rcode)
{
	l->flags |= rcode;
	put_soa(l);
	mark_needed(l);
}

/* The delegation's servers, with those addresses without which they cannot be
 * reached (RFC 9471). */
static void put_referral(struct layout *l, const struct zone_node *cut,
			 const uint8_t *owner)
{
	const struct zone_set *servers = zone_node_set(cut, DNS_NS);

	put_set(l, AUTHORITY, owner, servers);
	put_addresses(l, servers, true);
	mark_needed(l);
}

/* Writes the records of a name that exists, or that they do not. */
static void put_records(struct layout *l, const struct zone_set *set,
			const uint8_t *owner)
{
	if (!set) {
		put_negative(l, DNS_NOERROR);
		return;
	}
	put_set(l, ANSWER, owner, set);
	mark_needed(l);
	if (l->overflow)
		return;
	if (set->type != DNS_NS && set->type != DNS_MX && set->type != DNS_SRV)
		return;
	put_addresses(l, set, false);
	if (l->overflow) { /* the client can ask for the addresses */
		l->overflow = false;
		l->len = l->needed_len;
		l->counts[ADDITIONAL] = l->needed_additional;
	}
}

/* Where a chain of CNAMEs ends. */
struct chain {
	unsigned n;
	const struct zone_set *cnames[ZONE_TARGETS];
	enum { AT_NODE, AT_CUT, AT_NOTHING, OUTSIDE } end;
	const struct zone_node *node; /* AT_NODE, AT_CUT */
	bool is_cut; /* AT_CUT: the chain ends with the delegation's name */
};

static bool was_here(const struct chain *chain, const struct zone_node *first,
		     const uint8_t *target)
{
	if (names_equal(first->name, target))
		return true;
	for (unsigned i = 0; i + 1 < chain->n; i++)
		if (names_equal(chain->cnames[i]->records->rdata, target))
			return true;
	return chain->n == ZONE_TARGETS;
}

/* Follows the CNAMEs of a node inside the zone; a loop ends OUTSIDE. */
static void follow_cnames(const struct zone *zone, const struct zone_node *node,
			  struct chain *chain)
{
	const struct zone_set *cname;

	*chain = (struct chain){.end = AT_NODE, .node = node};
	while ((cname = zone_node_set(chain->node, DNS_CNAME))) {
		const struct zone_record *r = cname->records;
		struct dns_name target;
		bool exact = false;

		chain->cnames[chain->n++] = cname;
		chain->end = OUTSIDE;
		if (dns_name_read(r->rdata, r->len, &target) == 0 ||
		    !zone_has_name(zone, &target) ||
		    was_here(chain, node, r->rdata))
			return;
		chain->end = AT_NODE;
		chain->node = find_deepest(zone, &target, &exact);
		if (chain->node->cut) {
			chain->is_cut =
				exact && chain->node->cut == chain->node;
			chain->node = chain->node->cut;
			chain->end = AT_CUT;
			return;
		}
		if (!exact)
			chain->node = chain->node->wildcard;
		if (!chain->node) {
			chain->end = AT_NOTHING;
			return;
		}
	}
}

/* Lays out the answer for a node and type; set: at the end of its chain. */
static void put_answer(struct layout *l, const struct chain *chain,
		       const struct zone_set *set)
{
	const uint8_t *owner = NULL; /* the question's */

	for (unsigned i = 0; i < chain->n; i++) {
		put_set(l, ANSWER, owner, chain->cnames[i]);
		owner = chain->cnames[i]->records->rdata;
	}
	mark_needed(l);
	switch (chain->end) {
	case AT_NODE:
		put_records(l, set, owner);
		break;
	case AT_CUT:
		put_referral(l, chain->node, chain->node->name);
		break;
	case AT_NOTHING:
		put_negative(l, DNS_NXDOMAIN);
		break;
	case OUTSIDE:
		break;
	}
}

static int build_type(struct zone_builder *b, struct layout *l,
		      struct zone_node *node, const struct chain *chain,
		      uint16_t type, const struct zone_set *set)
{
	layout_begin(l, node, !is_wildcard(node->name));
	put_answer(l, chain, set);
	return store_answer(b, l, type, &node->answers[node->n_answers++]);
}

/*
 * The answers that a node has for types of its own or, behind a CNAME, of its
 * chain's end. A CNAME may have a signature and an NSEC beside it, which are
 * its own (RFC 4035 2.5). The DS of a delegation is in its parent, this zone
 * (RFC 4035 3.1.4.1).
 */
static int build_types(struct zone_builder *b, struct layout *l,
		       struct zone_node *node, const struct chain *chain)
{
	const struct chain here = {.end = AT_NODE, .node = node};
	const struct zone_set *end = NULL, *set;
	unsigned n = node->n_sets + chain->is_cut;
	struct chain parent = *chain;
	int err = 0;

	if (chain->n > 0 && chain->end == AT_NODE) {
		end = chain->node->sets;
		n += chain->node->n_sets;
	}
	node->answers =
		arena_alloc(&b->zone->arena, n * sizeof(*node->answers));
	if (!node->answers)
		return -ENOMEM;
	for (set = node->sets; err == 0 && set; set = set->next)
		err = build_type(b, l, node, &here, set->type, set);
	for (set = end; err == 0 && set; set = set->next)
		if (!zone_node_set(node, set->type))
			err = build_type(b, l, node, chain, set->type, set);
	parent.end = AT_NODE;
	if (err == 0 && chain->is_cut)
		err = build_type(b, l, node, &parent, DNS_DS,
				 zone_node_set(chain->node, DNS_DS));
	return err;
}

static int build_node(struct zone_builder *b, struct layout *l,
		      struct zone_node *node)
{
	struct chain chain;
	int err;

	if (node->cut == node) {
		layout_begin(l, node, false);
		l->flags = 0;
		put_referral(l, node, node->name);
		err = store_answer(b, l, DNS_NS, &node->referral);
		if (err < 0)
			return err;
	} else if (node->cut) {
		return 0;
	}
	follow_cnames(b->zone, node, &chain);
	err = build_types(b, l, node, &chain);
	if (err < 0)
		return err;
	node->otherwise = b->zone->no_data;
	if (chain.n == 0)
		return 0;
	layout_begin(l, node, !is_wildcard(node->name));
	put_answer(l, &chain, NULL);
	return store_answer(b, l, 0, &node->otherwise);
}

static int build_negative(struct zone_builder *b, struct layout *l)
{
	const struct zone_node *apex = apex_of(b->zone);
	int err;

	layout_begin(l, apex, false);
	put_negative(l, DNS_NXDOMAIN);
	err = store_answer(b, l, 0, &b->zone->missing);
	if (err < 0)
		return err;
	layout_begin(l, apex, false);
	put_negative(l, DNS_NOERROR);
	return store_answer(b, l, 0, &b->zone->no_data);
}

/* Finds the delegation that each name is at or below, and wildcards. */
static void link_node(const struct zone *zone, struct zone_node *node)
{
	struct dns_name name;
	struct zone_node *up;

	dns_name_read(node->name, node->name_len, &name);
	/* From the name up to the apex, so the highest delegation remains. */
	for (unsigned i = 0; i + zone->apex.n_labels < name.n_labels; i++) {
		unsigned at = name.label_at[i];

		up = zone_find(zone, name.hash[i], name.wire + at,
			       name.len - at);
		if (zone_node_set(up, DNS_NS))
			node->cut = up;
	}
	if (is_wildcard(node->name) && node->n_labels > zone->apex.n_labels) {
		up = zone_find(zone, name.hash[1], name.wire + 2,
			       name.len - 2u);
		up->wildcard = node;
	}
}

int zone_build(struct zone_builder *b)
{
	struct zone *zone = b->zone;
	struct layout *l = arena_alloc(&b->arena, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	l->zone = zone;
	for (uint32_t i = 0; i <= zone->mask; i++)
		if (zone->slots[i])
			link_node(zone, zone->slots[i]);
	err = build_negative(b, l);
	for (uint32_t i = 0; err == 0 && i <= zone->mask; i++)
		if (zone->slots[i])
			err = build_node(b, l, zone->slots[i]);
	for (uint32_t i = 0; i <= zone->mask; i++)
		if (zone->slots[i])
			zone->slots[i]->sets = NULL;
	return err;
}
