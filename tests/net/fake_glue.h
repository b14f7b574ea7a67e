/*
 * dpdk_glue without DPDK: a port that is two arrays in memory and a clock that
 * stands still, so that netstack/ can be tested frame by frame. Each thread has
 * its own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dpdk_glue/glue.h"

#define FAKE_MAX_FRAMES 4096

/* The stack's MAC and the tester's. */
extern const uint8_t fake_mac[6];
extern const uint8_t fake_peer_mac[6];

/* Called each time the stack flushes its port; NULL: nothing is. */
extern _Thread_local void (*fake_on_flush)(void);

/* The clock, in ns. */
extern _Thread_local int64_t fake_now_ns;

/* How far each reading moves the clock, in ns; 0: it stands still. */
extern _Thread_local int64_t fake_clock_step_ns;

/* Frames allocated and not freed. */
extern _Thread_local unsigned fake_frames_out;

/* How many more frames glue_tx_alloc() gives out; -1: without end. */
extern _Thread_local int fake_tx_budget;

/* How many received frames the stack may hold; -1: half of all. */
extern _Thread_local int fake_frames_spare;

/* Whether a pool of the port is reported to be empty. */
extern _Thread_local bool fake_frames_exhausted;

/* Frames are received in segments of so many bytes; 0: in one piece. */
extern _Thread_local unsigned fake_segment_bytes;

/* Frames to be sent have segments of so many bytes; 0: one piece. */
extern _Thread_local unsigned fake_tx_segment_bytes;

/* Whether frames may refer to lent memory. */
extern _Thread_local bool fake_lends;

/* How many pieces the frame had that fake_sent() gave last. */
extern _Thread_local unsigned fake_sent_pieces;

/*
 * Puts a frame before the stack; flags as glue_rx() would set them, 0: as
 * glue_check() does, which may drop it.
 */
void fake_receive(const void *data, unsigned len, uint16_t flags,
		  uint16_t l4_off);

/*
 * Puts a frame before the stack as it comes from the wire: judged, and its
 * checksums verified, as glue_rx() does. False: it was dropped.
 */
bool fake_receive_wire(const void *data, unsigned len);

/* Takes the oldest frame the stack sent: its length, 0 if there is none. */
unsigned fake_sent(uint8_t *data, unsigned room);

/* The shard whose ports cannot be opened; all but 0. */
extern _Atomic unsigned fake_broken_shard;

/* Forgets frames not taken. */
void fake_reset(void);
