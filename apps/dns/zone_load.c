/*
 * Reads zones with libldns, record by record, checks that they can be served,
 * and has zone_build.c lay out their answers.
 */
#include "apps/dns/zone_priv.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <ldns/ldns.h>

#define DEFAULT_TTL 3600	/* before a $TTL */
#define TTL_MAX	    0x7fffffffu /* more means 0 (RFC 2181 8) */

/* libldns' state between two records. */
struct source {
	FILE *file;
	uint32_t ttl;
	ldns_rdf *origin, *previous; /* owned */
	int line;		     /* the last one that was read */
};

__attribute__((format(printf, 2, 3))) static int
refuse_zone(struct zone_builder *b, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(b->error, ZONE_ERROR_MAX, format, args);
	va_end(args);
	return -EINVAL;
}

const char *zone_name_text(const uint8_t *name, char text[ZONE_NAME_TEXT])
{
	char *to = text;

	if (*name == 0)
		*to++ = '.';
	/* A byte takes at most four characters, and a name has 255. */
	while (*name) {
		unsigned n = *name++;

		while (n-- > 0) {
			uint8_t c = *name++;

			if (c == '.' || c == '\\')
				*to++ = '\\';
			if (isgraph(c))
				*to++ = (char)c;
			else
				to += sprintf(to, "\\%03u", c);
		}
		*to++ = '.';
	}
	*to = 0;
	return text;
}

const struct zone_set *zone_node_set(const struct zone_node *node,
				     uint16_t type)
{
	for (const struct zone_set *set = node->sets; set; set = set->next)
		if (set->type == type)
			return set;
	return NULL;
}

/* ---- adding records ---- */

/* Returns the set of that type, which is made if necessary; NULL: no memory. */
static struct zone_set *make_set(struct zone_builder *b, struct zone_node *node,
				 uint16_t type, uint32_t ttl)
{
	struct zone_set **at = &node->sets, *set;

	while (*at && (*at)->type < type)
		at = &(*at)->next;
	if (*at && (*at)->type == type)
		return *at;
	set = arena_alloc(&b->arena, sizeof(*set));
	if (!set)
		return NULL;
	*set = (struct zone_set){.type = type, .ttl = ttl, .next = *at};
	*at = set;
	node->n_sets++;
	return set;
}

/* Returns the fewest bytes of a record in an answer, with its owner. */
static size_t least_bytes(uint16_t type, size_t len)
{
	bool is_compressed = type == DNS_NS || type == DNS_CNAME ||
			     type == DNS_PTR || type == DNS_MX ||
			     type == DNS_SOA;

	return 12 + (is_compressed ? 2 : len);
}

/*
 * Appends a record, unless the set has it (RFC 2181 5). Refuses a set that no
 * answer holds at once, since each record is compared with those before it.
 */
static int add_record(struct zone_builder *b, const struct dns_name *name,
		      struct zone_set *set, const uint8_t *rdata, size_t len)
{
	struct zone_record **at = &set->records, *record;
	char text[ZONE_NAME_TEXT];
	uint8_t *copy;

	for (; *at; at = &(*at)->next)
		if ((*at)->len == len && memcmp((*at)->rdata, rdata, len) == 0)
			return 0;
	set->least_bytes += least_bytes(set->type, len);
	if (set->least_bytes > ZONE_ANSWER_MAX)
		return refuse_zone(b, ZONE_TOO_LARGE,
				   zone_name_text(name->wire, text));
	record = arena_alloc(&b->arena, sizeof(*record));
	copy = arena_alloc(&b->arena, len);
	if (!record || !copy)
		return -ENOMEM;
	memcpy(copy, rdata, len);
	record->rdata = copy;
	record->len = (uint16_t)len;
	*at = record;
	set->n++;
	b->zone->n_records++;
	return 0;
}

/* Refuses what this server cannot answer as its RFC wants. */
static int check_record(struct zone_builder *b, const struct dns_name *name,
			const ldns_rr *rr)
{
	unsigned type = ldns_rr_get_type(rr);
	char text[ZONE_NAME_TEXT];

	zone_name_text(name->wire, text);
	if (ldns_rr_get_class(rr) != LDNS_RR_CLASS_IN)
		return refuse_zone(b, "%.255s: only class IN is served", text);
	if (!zone_has_name(b->zone, name))
		return refuse_zone(b, "%.255s is outside the zone", text);
	if (type == DNS_DNAME)
		return refuse_zone(b, "%.255s: DNAME is not supported", text);
	if (type == DNS_NS && name->wire[0] == 1 && name->wire[1] == '*')
		return refuse_zone(
			b, "%.255s: a wildcard cannot be a delegation", text);
	if (type == DNS_SOA && name->n_labels != b->zone->apex.n_labels)
		return refuse_zone(b, "%.255s: SOA below the zone's apex",
				   text);
	return 0;
}

static int add_rr(struct zone_builder *b, const ldns_rr *rr)
{
	const ldns_rdf *owner = ldns_rr_owner(rr);
	uint32_t ttl = ldns_rr_ttl(rr);
	struct dns_name name;
	struct zone_node *node;
	struct zone_set *set;
	ldns_buffer *rdata;
	int err;

	if (dns_name_read(ldns_rdf_data(owner), ldns_rdf_size(owner), &name) ==
	    0)
		return refuse_zone(b, "the name of a record is wrong");
	err = check_record(b, &name, rr);
	if (err < 0)
		return err;
	if (ttl > TTL_MAX)
		ttl = 0;
	node = zone_make_node(b->zone, &name);
	set = node ? make_set(b, node, (uint16_t)ldns_rr_get_type(rr), ttl)
		   : NULL;
	rdata = ldns_buffer_new(LDNS_MAX_PACKETLEN);
	if (!set || !rdata) {
		err = -ENOMEM;
	} else {
		if (ttl < set->ttl)
			set->ttl = ttl; /* RFC 2181 5.2 */
		if (ldns_rr_rdata2buffer_wire(rdata, rr) == LDNS_STATUS_OK)
			err = add_record(b, &name, set,
					 ldns_buffer_begin(rdata),
					 ldns_buffer_position(rdata));
		else
			err = refuse_zone(b, "a record's data is too long");
	}
	ldns_buffer_free(rdata);
	return err;
}

/* ---- reading ---- */

/* Reads the next record; *done: the file has ended. */
static int read_record(struct zone_builder *b, struct source *source,
		       bool *done)
{
	ldns_rr *rr = NULL;
	ldns_status status;
	int err = 0, line = source->line;

	status = ldns_rr_new_frm_fp_l(&rr, source->file, &source->ttl,
				      &source->origin, &source->previous,
				      &source->line);
	switch ((int)status) {
	case LDNS_STATUS_OK:
		err = add_rr(b, rr);
		break;
	case LDNS_STATUS_SYNTAX_TTL:
		if (source->ttl == 0) /* libldns would take it for unset */
			source->ttl = TTL_MAX + 1;
		break;
	case LDNS_STATUS_SYNTAX_EMPTY:
	case LDNS_STATUS_SYNTAX_ORIGIN:
		break;
	case LDNS_STATUS_SYNTAX_INCLUDE:
		err = refuse_zone(b, "$INCLUDE is not supported");
		break;
	default:
		err = refuse_zone(b, "%s", ldns_get_errorstr_by_id(status));
	}
	ldns_rr_free(rr);
	*done = feof(source->file) && source->line == line &&
		status != LDNS_STATUS_OK;
	return err;
}

static int read_records(struct zone_builder *b, FILE *file, ldns_rdf *apex)
{
	struct source source = {.file = file, .ttl = DEFAULT_TTL};
	char text[ZONE_ERROR_MAX];
	bool done = false;
	int err = 0;

	source.origin = ldns_rdf_clone(apex);
	while (err == 0 && !done && !feof(file) && !ferror(file))
		err = read_record(b, &source, &done);
	if (err == -EINVAL) {
		memcpy(text, b->error, sizeof(text));
		snprintf(b->error, ZONE_ERROR_MAX, "line %d: %.480s",
			 source.line, text);
	}
	if (err == 0 && ferror(file))
		err = refuse_zone(b, "%s", strerror(errno));
	ldns_rdf_deep_free(source.origin);
	ldns_rdf_deep_free(source.previous);
	return err;
}

/* ---- checks of the whole ---- */

static int check_node(struct zone_builder *b, const struct zone_node *node)
{
	const struct zone_set *cname = zone_node_set(node, DNS_CNAME);
	char text[ZONE_NAME_TEXT];

	if (!cname)
		return 0;
	zone_name_text(node->name, text);
	if (cname->n > 1)
		return refuse_zone(b, "%.255s has more than one CNAME", text);
	for (const struct zone_set *set = node->sets; set; set = set->next)
		if (set != cname && set->type != DNS_RRSIG &&
		    set->type != DNS_NSEC)
			return refuse_zone(
				b, "%.255s has a CNAME and other records",
				text);
	return 0;
}

static int check_zone(struct zone_builder *b)
{
	struct zone *zone = b->zone;
	const struct zone_node *apex;
	const struct zone_set *soa;
	int err = 0;

	apex = zone->slots ? zone_find(zone, zone->apex.hash[0],
				       zone->apex.wire, zone->apex.len)
			   : NULL;
	soa = apex ? zone_node_set(apex, DNS_SOA) : NULL;
	if (!soa)
		return refuse_zone(b, "the zone has no SOA record");
	if (soa->n > 1)
		return refuse_zone(b, "the zone has more than one SOA record");
	if (!zone_node_set(apex, DNS_NS))
		return refuse_zone(b, "the zone has no NS record at its apex");
	zone->serial =
		ldns_read_uint32(soa->records->rdata + soa->records->len - 20);
	for (uint32_t i = 0; err == 0 && i <= zone->mask; i++)
		if (zone->slots[i])
			err = check_node(b, zone->slots[i]);
	return err;
}

static int load_records(struct zone_builder *b, FILE *file, ldns_rdf *apex)
{
	int err = read_records(b, file, apex);

	if (err == 0)
		err = check_zone(b);
	if (err == 0)
		err = zone_build(b);
	if (err == -ENOMEM)
		refuse_zone(b, "out of memory");
	return err;
}

struct zone *zone_load(const char *name, FILE *file, char error[ZONE_ERROR_MAX])
{
	struct zone_builder b = {.error = error};
	ldns_rdf *apex = ldns_dname_new_frm_str(name);
	int err = -ENOMEM;

	b.zone = calloc(1, sizeof(*b.zone));
	if (!b.zone)
		refuse_zone(&b, "out of memory");
	else if (!apex ||
		 dns_name_read(ldns_rdf_data(apex), ldns_rdf_size(apex),
			       &b.zone->apex) == 0)
		err = refuse_zone(&b, "'%.200s' is not a domain name", name);
	else
		err = load_records(&b, file, apex);
	ldns_rdf_deep_free(apex);
	arena_free(&b.arena);
	if (err == 0)
		return b.zone;
	zone_free(b.zone);
	return NULL;
}
