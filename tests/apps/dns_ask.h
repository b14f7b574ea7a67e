/*
 * For tests of coronet-dns: serves a zone and asks it. libldns, which shares no
 * code with what writes answers, reads them.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ldns/ldns.h>

#include "apps/dns/answer.h"
#include "dns_zone.h"

#define SOA(ttl)                                                               \
	"example.com. " ttl " IN SOA ns1.example.com. admin.example.com. 7 "   \
	"3600 600 86400 60;"

static struct zones *zones;
static uint8_t answer[65535];
static size_t answer_len;
static struct dns_outcome outcome;
static char text[65536];

static inline struct zones *load_zone(const char *name, const char *zone_text)
{
	struct zones *made = calloc(1, sizeof(*made));
	char error[ZONE_ERROR_MAX] = "";
	struct zone *zone =
		dns_zone_from(name, zone_text, strlen(zone_text), error);

	if (!zone)
		fail_msg("%s", error);
	assert_int_equal(zones_add(made, zone), 0);
	return made;
}

static inline int set_up(void **state)
{
	zones = load_zone("example.com", DNS_TEST_ZONE);
	return 0;
}

/* Serves another zone in place of the one before. */
static inline void serve_zone(const char *name, const char *zone_text)
{
	zones_free(zones);
	zones = load_zone(name, zone_text);
}

static inline int tear_down(void **state)
{
	zones_free(zones);
	return 0;
}

/* Answers a copy of exact size, so that ASan sees reads beyond its end. */
static inline void send_query(const uint8_t *msg, size_t len,
			      enum dns_carriage carriage)
{
	uint8_t *copy = malloc(len ? len : 1);

	memcpy(copy, msg, len);
	answer_len = dns_answer(zones, copy, len, carriage, answer,
				sizeof(answer), &outcome);
	free(copy);
}

static inline void add_section(const char *title, const ldns_rr_list *list)
{
	size_t n = ldns_rr_list_rr_count(list);

	for (size_t i = 0; i < n; i++) {
		char *line = ldns_rr2str(ldns_rr_list_rr(list, i));

		for (char *c = line; *c; c++)
			*c = *c == '\t' ? ' ' : *c == '\n' ? ';' : *c;
		if (i == 0)
			strcat(text, title);
		strcat(text, line);
		free(line);
	}
}

/* The answer as text: rcode, flags, sections. */
static inline const char *as_text(void)
{
	ldns_pkt *pkt = NULL;
	char *rcode;

	assert_int_equal(ldns_wire2pkt(&pkt, answer, answer_len),
			 LDNS_STATUS_OK);
	assert_int_equal(ldns_pkt_id(pkt), 0x1234);
	assert_true(ldns_pkt_qr(pkt));
	rcode = ldns_pkt_rcode2str(ldns_pkt_get_rcode(pkt));
	sprintf(text, "%s%s%s", rcode, ldns_pkt_aa(pkt) ? " aa" : "",
		ldns_pkt_tc(pkt) ? " tc" : "");
	free(rcode);
	add_section(" an ", ldns_pkt_answer(pkt));
	add_section(" ns ", ldns_pkt_authority(pkt));
	add_section(" ar ", ldns_pkt_additional(pkt));
	ldns_pkt_free(pkt);
	return text;
}

static inline const char *ask_query(const char *name, unsigned type)
{
	uint8_t msg[512];

	send_query(msg, dns_make_query(msg, name, type, 0), DNS_OVER_TCP);
	return as_text();
}

static inline const char *ask_udp(const char *name, unsigned type,
				  unsigned udp_size)
{
	uint8_t msg[512];

	send_query(msg, dns_make_query(msg, name, type, udp_size),
		   DNS_OVER_UDP);
	return as_text();
}
