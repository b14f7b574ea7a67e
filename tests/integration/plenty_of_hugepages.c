/* Preloaded: makes the kernel report 500 free hugepages, whatever there are. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef FILE *open_fn(const char *path, const char *mode);

FILE *fopen(const char *path, const char *mode)
{
	static char free_pages[] = "500\n";
	void *found = dlsym(RTLD_NEXT, "fopen");
	open_fn *open;

	if (strstr(path, "/free_hugepages"))
		return fmemopen(free_pages, sizeof(free_pages) - 1, "r");
	memcpy(&open, &found, sizeof(open)); /* ISO C has no such cast */
	return open(path, mode);
}
