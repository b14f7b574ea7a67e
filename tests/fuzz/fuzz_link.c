/* Any text as --link: it is refused with a reason, or accepted with a name. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "dpdk_glue/glue.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct glue_link untouched;
	struct glue_link link = untouched;
	char err[256] = "";
	char *text = malloc(size + 1);

	assert(text);
	memcpy(text, data, size);
	text[size] = '\0';
	if (glue_link_parse(text, &link, err, sizeof(err)) == 0) {
		assert(err[0] == '\0');
		assert(link.name[0] && memchr(link.name, 0, GLUE_PATH_MAX));
		assert(memchr(link.name2, 0, GLUE_PATH_MAX));
	} else {
		assert(err[0] && memchr(err, 0, sizeof(err)));
		assert(memcmp(&link, &untouched, sizeof(link)) == 0);
	}
	free(text);
	return 0;
}
