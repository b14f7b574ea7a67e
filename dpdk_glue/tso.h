/*
 * TCP segmentation offload: consecutive segments of one TCP flow leave as one
 * frame, which the NIC cuts up again.
 *
 * This part sees headers alone: what may follow what, and what the headers of
 * the whole must say. Private to dpdk_glue/.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define GLUE_TSO_BYTES 65535u /* of an IP packet */

struct glue_tso {
	uint8_t *headers;     /* of the first segment; NULL: none */
	uint16_t l3_off;      /* bytes to the IP header */
	uint16_t l4_off;      /* bytes to the TCP header */
	uint16_t payload_off; /* bytes to the payload */
	uint16_t mss;	      /* payload of every segment but the last */
	uint32_t next_seq;
	uint32_t payload; /* bytes so far */
	unsigned segs;
	bool ip6;
	bool ended; /* nothing may follow */
};

/*
 * Begins a TSO frame with a segment: headers as they lie in the frame, len
 * bytes of frame in all. False, and none begun, when it carries nothing or must
 * go alone (SYN, RST, URG).
 */
bool glue_tso_begin(struct glue_tso *tso, uint8_t *headers, uint16_t l3_off,
		    uint16_t l4_off, bool ip6, unsigned len);

/*
 * Adds a segment if it continues the frame: the same addresses, ports, ACK,
 * window, options and other fields, the next sequence number, no more payload
 * than the first, all before it full, and 64 KiB in all.
 */
bool glue_tso_add(struct glue_tso *tso, const uint8_t *headers, uint16_t l3_off,
		  uint16_t l4_off, unsigned len);

/*
 * Writes what the first segment's headers must say of a frame of two segments
 * and more: the IP length, no IP checksum, and the sum of the pseudo header
 * without length that the NIC begins with. FIN, and PSH if any segment had it,
 * are there already: the NIC puts them on the last, whose arrival pushes the
 * rest.
 */
void glue_tso_end(struct glue_tso *tso);
