/*
 * Any bytes as a message to coronet-dns: no byte beyond them is read, an answer
 * keeps within its room, and is a message that libldns can read, with the
 * query's ID and question.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <ldns/ldns.h>

#include "../apps/dns_zone.h"
#include "apps/dns/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct zones *load_zones(void)
{
	static const char text[] = DNS_TEST_ZONE;
	struct zones *zones = calloc(1, sizeof(*zones));
	char error[ZONE_ERROR_MAX];
	struct zone *zone =
		dns_zone_from("example.com", text, sizeof(text) - 1, error);

	assert(zones && zone);
	zones_add(zones, zone);
	return zones;
}

static void check_answer(const uint8_t *query, size_t query_len,
			 const uint8_t *answer, size_t len)
{
	ldns_pkt *pkt = NULL;

	assert(len >= DNS_HEADER_BYTES);
	assert(answer[0] == query[0] && answer[1] == query[1]);
	assert(answer[2] & 0x80);
	assert(ldns_wire2pkt(&pkt, answer, len) == LDNS_STATUS_OK);
	assert(ldns_pkt_size(pkt) == len);
	if (ldns_pkt_qdcount(pkt) == 1)
		assert(query_len > DNS_HEADER_BYTES &&
		       answer[DNS_HEADER_BYTES] == query[DNS_HEADER_BYTES]);
	ldns_pkt_free(pkt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct zones *zones;
	enum dns_carriage carriage;
	struct dns_outcome outcome;
	size_t room, len;
	uint8_t *query, *answer;

	if (!zones)
		zones = load_zones();
	if (size == 0)
		return 0;
	carriage = (enum dns_carriage)(data[0] % 3);
	room = DNS_UDP_PLAIN + data[0] * 4u;
	query = malloc(size);
	answer = malloc(room);
	assert(query && answer);
	memcpy(query, data + 1, size - 1);
	/* Of exact size, so that ASan sees reads beyond its end. */
	query = realloc(query, size > 1 ? size - 1 : 1);
	len = dns_answer(zones, query, size - 1, carriage, answer, room,
			 &outcome);
	assert(len <= room);
	assert(outcome.rcode < DNS_RCODES || len == 0);
	if (len > 0)
		check_answer(query, size - 1, answer, len);
	free(query);
	free(answer);
	return 0;
}
