/* The longest name of a socket has no NUL; an address that is longer than any is refused, and no fact. */
#include "guest.h"

#include <sys/socket.h>
#include <sys/un.h>

int main(void)
{
	union {
		struct sockaddr_un un;
		char bytes[sizeof(struct sockaddr_storage)];
	} address = { .un.sun_family = AF_UNIX };
	int server = socket(AF_UNIX, SOCK_STREAM, 0);
	char name[sizeof address.un.sun_path + 1] = "";

	memset(address.bytes + 2, 'x', sizeof address - 2);
	must(bind(server, (struct sockaddr *)&address, sizeof address) < 0 && errno == EINVAL);
	must(connect(server, (struct sockaddr *)&address, sizeof address) < 0 && errno == EINVAL);
	must(bind(server, (struct sockaddr *)&address, sizeof address.un) == 0);
	memset(name, 'x', sizeof name - 1);
	expect("MKNOD", name);
	return 0;
}
