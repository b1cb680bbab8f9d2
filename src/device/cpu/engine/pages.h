/* Memory that is used for the first time. */
#ifndef RCVI_PAGES_H
#define RCVI_PAGES_H

#include <stddef.h>

/* A member's share of the pages of a block: touches each of them, and changes nothing. Shares are whole huge pages. The system clears a page
 * when it is first touched; where several threads touch a huge page at once, each of them clears one, and all but one are thrown away. */
void rcvi_touch_pages(void *block, size_t bytes, int member, int members);

#endif
