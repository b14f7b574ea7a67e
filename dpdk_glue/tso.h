/*
 * TCP segmentation offload: consecutive segments of a TCP flow are passed to
 * the NIC as one frame, which it cuts into segments again.
 *
 * This part works on headers alone: it decides which segments may be joined,
 * and writes the headers of the joined frame. Private to dpdk_glue/.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define GLUE_TSO_BYTES 65535u /* of an IP packet */

struct glue_tso {
	uint8_t *headers;     /* of the first segment; NULL: no frame */
	uint16_t l3_off;      /* bytes to the IP header */
	uint16_t l4_off;      /* bytes to the TCP header */
	uint16_t payload_off; /* bytes to the payload */
	uint16_t mss;	      /* payload of every segment but the last */
	uint32_t next_seq;
	uint32_t payload; /* bytes so far */
	unsigned segs;
	bool ip6;
	bool ended; /* no further segment may be added */
};

/*
 * Begins a TSO frame with a segment. headers: as they lie in the frame, which
 * has len bytes in all. Returns false, and begins none, if the segment has no
 * data or must be sent alone (SYN, RST, URG).
 */
bool glue_tso_begin(struct glue_tso *tso, uint8_t *headers, uint16_t l3_off,
		    uint16_t l4_off, bool ip6, unsigned len);

/*
 * Adds a segment and returns true if it continues the frame: it has the same
 * addresses, ports, ACK, window, options and other fields, the next sequence
 * number and no more payload than the first; all before it are full; and the
 * frame stays within 64 KiB.
 */
bool glue_tso_add(struct glue_tso *tso, const uint8_t *headers, uint16_t l3_off,
		  uint16_t l4_off, unsigned len);

/*
 * Updates the first segment's headers for a frame of two or more segments: the
 * IP length, no IP checksum, and the sum of the pseudo-header without the
 * length, from which the NIC starts. FIN, and PSH if any segment had it, are
 * set already: the NIC sets them on the last segment.
 */
void glue_tso_end(struct glue_tso *tso);
