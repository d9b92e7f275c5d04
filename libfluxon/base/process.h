// What a program does first, before it opens anything, and how it says that it must end.
#pragma once

#include <string>

namespace fluxon {

// Opens what is closed of the descriptors 0, 1 and 2 the other way round: 0 for writing, 1 and 2 for reading, of /dev/null. So nothing
// that is opened later gets such a number and takes what somebody prints, and whoever uses a descriptor that was not given to the
// program gets EBADF as before. Ignores SIGXFSZ: a file that would outgrow RLIMIT_FSIZE is an error (EFBIG) and no death. Ends the
// process with 71 if there is no /dev/null.
void beginProgram();

// How a failed check (check.h) says its reason; without it: on stderr, at once.
void sayFailedChecks(void (*say)(const std::string& line));

}  // namespace fluxon
