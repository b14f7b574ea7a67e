/*
 * One stack lives through all inputs, each a list of steps.
 */
#include "tests/fuzz/tcp_steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool open;

	if (!open)
		steps_open(NULL, false);
	open = true;
	steps_run(data, size);
	return 0;
}
