/*
 * SIGUSR1 reopens the logs, as logrotate asks for: from the start of the
 * program to its end. The stack has an action only while it is open, and the
 * default action would end a program that still reads its files, or that writes
 * the rest of its access log.
 */
#pragma once

/*
 * Makes SIGUSR1 reopen the logs that are open, or are opened later. Called
 * first in main().
 */
void log_signal_catch(void);
