/*
 * Starts AddressSanitizer before any other constructor runs. It starts at the
 * first allocation, and looks up symbols then, which takes the C library's lock
 * of translations. In programs that only have it preloaded, the first
 * allocation may be one of bindtextdomain(), which holds that lock:
 * libgpg-error's constructor calls it. The lock is never free again after that.
 *
 * The linker marks this library: its constructors run first (-z initfirst).
 */
#include <stdlib.h>

__attribute__((constructor)) static void start_sanitizer(void)
{
	void *volatile memory = malloc(1);

	free(memory);
}
