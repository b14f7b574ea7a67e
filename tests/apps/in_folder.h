/*
 * A folder of a test's own, and files in it.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static char folder[64], path[256];

/* The path of what has this name in the folder, until the next call. */
static inline const char *in_folder(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static inline void write_file(const char *name, const char *text)
{
	FILE *file = fopen(in_folder(name), "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* 0, or -1 where no folder can be made. */
static inline int in_folder_make(void)
{
	snprintf(folder, sizeof(folder), "/tmp/coronet-test-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

/* With all that is in it. 0, or what rm ended with. */
static inline int in_folder_remove(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}
