/*
 * A port whose frames are an array in memory, and a clock that benchmarks move.
 */
#include "tests/bench/array_port.h"

#include <stdlib.h>

#define POOL 4096u

_Thread_local int64_t array_now_ns;

static _Thread_local uint8_t *cells; /* a frame and its room each */
static _Thread_local unsigned room;
static _Thread_local struct glue_frame *free_frames[POOL];
static _Thread_local unsigned n_free;

void array_port_make(unsigned bytes)
{
	size_t cell = sizeof(struct glue_frame) + bytes;

	array_now_ns = 1000000000;
	room = bytes;
	cells = aligned_alloc(64, POOL * cell);
	if (!cells || cell % 64)
		exit(1);
	for (n_free = 0; n_free < POOL; n_free++)
		free_frames[n_free] = (void *)(cells + n_free * cell);
}

void array_port_free(void)
{
	free(cells);
}

struct glue_frame *array_take(unsigned len)
{
	struct glue_frame *frame;

	if (n_free == 0 || len > room)
		return NULL;
	frame = free_frames[--n_free];
	frame->data = (uint8_t *)(frame + 1);
	frame->seg_len = (uint16_t)len;
	frame->next = NULL;
	frame->l3_off = 14;
	frame->l4_off = 34;
	frame->flags = GLUE_FRAME_IP4 | GLUE_FRAME_TCP | GLUE_FRAME_CSUM_OK;
	return frame;
}

/* ---- glue.h ---- */

int64_t glue_now_ns(void)
{
	return array_now_ns;
}

int glue_port_open(unsigned index, const struct glue_port_conf *conf,
		   struct glue_port **out, char *err, size_t err_len)
{
	*out = (struct glue_port *)(void *)cells;
	return 0;
}

void glue_port_close(struct glue_port *port)
{
}

void glue_port_keep_refused(struct glue_port *port, bool keeps)
{
}

const uint8_t *glue_port_mac(const struct glue_port *port)
{
	return (const uint8_t *)"\2\0\0\0\0\1";
}

struct glue_frame *glue_tx_alloc(struct glue_port *port, unsigned len)
{
	return array_take(len);
}

bool glue_port_lends(const struct glue_port *port)
{
	return false;
}

bool glue_tx_lend(struct glue_port *port, struct glue_frame *frame,
		  const void *data, unsigned len, struct glue_lender *lender)
{
	return false;
}

bool glue_tx_again(struct glue_port *port, struct glue_frame *frame,
		   unsigned len)
{
	return false;
}

bool glue_tx_busy(struct glue_port *port)
{
	return n_free < POOL / 8;
}

void glue_tx_drop(struct glue_port *port)
{
}

void glue_frame_free(struct glue_frame *frame)
{
	free_frames[n_free++] = frame;
}

void glue_frame_split(struct glue_frame *frame)
{
}

unsigned glue_port_frames_free(const struct glue_port *port)
{
	return n_free;
}

unsigned glue_port_frames(const struct glue_port *port)
{
	return POOL;
}
