/* truncate to 0 is blind; to another length it keeps a part, so it reads. */
#include "guest.h"

int main(void)
{
	put("blind", "12345");
	put("part", "12345");
	must(truncate("blind", 0) == 0 && truncate("part", 3) == 0);
	must(truncate("absent", 0) < 0);
	expect("WRITE", "blind");
	expect("! READ", "blind");
	expect("WRITE", "part");
	expect("READ", "part");
	expect("MISSED", "absent");
	return 0;
}
