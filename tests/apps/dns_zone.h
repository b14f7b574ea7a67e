/*
 * For tests of coronet-dns: a zone with a name for each rule, and queries.
 */
#pragma once

#include <stdio.h>
#include <string.h>

#include <ldns/ldns.h>

#include "apps/dns/zone.h"

#define DNS_TEST_ZONE                                                          \
	"$TTL 300\n"                                                           \
	"@ 3600 IN SOA ns1 admin ( 7 3600 600 86400 60 )\n"                    \
	"  IN NS ns1\n"                                                        \
	"  IN NS ns.example.net.\n"                                            \
	"  IN MX 10 mail\n"                                                    \
	"  IN MX 20 mail\n"                                                    \
	"  IN TXT \"one\" \"two\"\n"                                           \
	"ns1 IN A 192.0.2.1\n"                                                 \
	"ns1 IN AAAA 2001:db8::1\n"                                            \
	"mail IN A 192.0.2.2\n"                                                \
	"www IN A 192.0.2.3\n"                                                 \
	"www IN A 192.0.2.4\n"                                                 \
	"www IN A 192.0.2.3\n"                                                 \
	"alias IN CNAME www\n"                                                 \
	"twice IN CNAME alias\n"                                               \
	"gone IN CNAME missing\n"                                              \
	"away IN CNAME www.example.net.\n"                                     \
	"loop1 IN CNAME loop2\n"                                               \
	"loop2 IN CNAME loop1\n"                                               \
	"wild IN CNAME a.b.stars\n"                                            \
	"into IN CNAME host.sub\n"                                             \
	"*.stars IN A 192.0.2.5\n"                                             \
	"*.stars IN MX 5 mail.stars\n"                                         \
	"*.stars IN PTR *.stars\n"                                             \
	"is.stars IN TXT \"here\"\n"                                           \
	"*.far IN CNAME away\n"                                                \
	"deep.between IN A 192.0.2.6\n"                                        \
	"sub IN NS ns.sub\n"                                                   \
	"sub IN NS ns1\n"                                                      \
	"sub IN DS 1 8 2 "                                                     \
	"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"   \
	"ns.sub IN A 192.0.2.7\n"                                              \
	"hidden.sub IN A 192.0.2.8\n"                                          \
	"_sip._udp IN SRV 1 2 5060 www\n"

/* Loads a zone from text; NULL: see error. */
static inline struct zone *dns_zone_from(const char *name, const char *text,
					 size_t len, char *error)
{
	FILE *file = fmemopen((void *)text, len, "r");
	struct zone *zone = zone_load(name, file, error);

	fclose(file);
	return zone;
}

/* Writes a query; udp_size 0: without EDNS. Returns its length. */
static inline size_t dns_make_query(uint8_t *msg, const char *name,
				    unsigned type, unsigned udp_size)
{
	static const uint8_t header[] = {0x12, 0x34, 1, 0, 0, 1,
					 0,    0,    0, 0, 0, 0};
	ldns_rdf *dname = ldns_dname_new_frm_str(name);
	size_t len = sizeof(header);

	memcpy(msg, header, len);
	memcpy(msg + len, ldns_rdf_data(dname), ldns_rdf_size(dname));
	len += ldns_rdf_size(dname);
	ldns_rdf_deep_free(dname);
	dns_put16(msg + len, type);
	dns_put16(msg + len + 2, DNS_IN);
	len += 4;
	if (udp_size > 0) {
		msg[11] = 1;
		memset(msg + len, 0, DNS_OPT_BYTES);
		dns_put16(msg + len + 1, DNS_OPT);
		dns_put16(msg + len + 3, udp_size);
		len += DNS_OPT_BYTES;
	}
	return len;
}
