/* Tables: tools/web/page_markdown.h. */
#include <errno.h>
#include <string.h>

#include "tools/web/page_markdown.h"
#include "tools/web/page_pre.h"

enum { COLUMNS_MAX = 12 };

/* The cells of a row by column; NULL: covered by a cell beside or above it. */
struct row {
	const struct page_node *cells[COLUMNS_MAX];
	size_t columns;
	struct row *next;
};

struct grid {
	struct row *first, *last;
	size_t below[COLUMNS_MAX]; /* rows that a cell above still covers */
	bool fits;                 /* Markdown can show it as a table */
	int error;
};

static bool is_cell(const struct page_node *node)
{
	return (page_is(node, "td") || page_is(node, "th")) && !page_is_gutter(node);
}

static bool has_blocks(const struct page_node *node)
{
	static const char *const names[] = {"ul", "ol", "dl", "pre", "table", "blockquote", "h1",
		"h2", "h3", "h4", "h5", "h6", "hr", "details"};

	for (const struct page_node *child = node->first; child; child = child->next) {
		for (size_t i = 0; i < array_size(names); i++)
			if (page_is(child, names[i]))
				return true;
		if (has_blocks(child))
			return true;
	}
	return false;
}

static bool has_table(const struct page_node *node)
{
	for (const struct page_node *child = node->first; child; child = child->next)
		if (page_is(child, "table") || has_table(child))
			return true;
	return false;
}

static size_t span(const struct page_node *cell, const char *name)
{
	const char *value = page_attribute(cell, name);
	long number = value ? strtol(value, NULL, 10) : 1;

	return number < 1 ? 1 : number > 1000 ? 1000 : (size_t)number;
}

static void add_row(struct grid *grid, const struct page_node *node)
{
	struct row *row = calloc(1, sizeof(*row));

	if (!row) {
		grid->error = -ENOMEM;
		return;
	}
	if (grid->last)
		grid->last->next = row;
	else
		grid->first = row;
	grid->last = row;
	for (const struct page_node *cell = node->first; cell; cell = cell->next) {
		size_t columns, rows;

		if (!is_cell(cell))
			continue;
		grid->fits = grid->fits && !has_blocks(cell);
		while (row->columns < COLUMNS_MAX && grid->below[row->columns])
			grid->below[row->columns++]--;
		columns = span(cell, "colspan");
		rows = span(cell, "rowspan");
		if (row->columns + columns > COLUMNS_MAX) {
			grid->fits = false;
			return;
		}
		row->cells[row->columns] = cell;
		while (columns--)
			grid->below[row->columns++] = rows - 1;
	}
	while (row->columns < COLUMNS_MAX && grid->below[row->columns])
		grid->below[row->columns++]--;
}

static void add_rows(struct grid *grid, const struct page_node *node)
{
	for (const struct page_node *child = node->first; child; child = child->next) {
		if (page_is(child, "tr"))
			add_row(grid, child);
		else if (page_is(child, "thead") || page_is(child, "tbody") ||
			 page_is(child, "tfoot"))
			add_rows(grid, child);
	}
}

static bool is_rectangle(const struct grid *grid)
{
	for (const struct row *row = grid->first; row; row = row->next)
		if (row->columns != grid->first->columns)
			return false;
	return grid->first && grid->first->next && grid->first->columns > 1;
}

static void write_row(struct page_markdown *m, const struct row *row)
{
	writer_row_begin(&m->writer);
	for (size_t i = 0; i < row->columns; i++) {
		writer_cell_begin(&m->writer);
		if (row->cells[i])
			markdown_children(m, row->cells[i]);
		writer_cell_end(&m->writer);
	}
	if (!m->writer.plain && !m->writer.error)
		m->writer.error = buffer_append_string(m->writer.out, "|");
}

static void write_grid(struct page_markdown *m, const struct grid *grid)
{
	static const char dashes[] =
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | "
		"--- |";
	char line[sizeof(dashes)];

	writer_break(&m->writer, 2);
	for (const struct row *row = grid->first; row; row = row->next) {
		write_row(m, row);
		if (row != grid->first || m->writer.plain)
			continue;
		snprintf(line, sizeof(line), "%.*s", (int)(6 * row->columns + 1), dashes);
		writer_row_begin(&m->writer);
		writer_atom(&m->writer, line);
	}
	writer_break(&m->writer, 2);
}

/* Writes the cells of a row that no Markdown table can show, one after the other. */
static void write_cells(struct page_markdown *m, const struct page_node *row, const char *between)
{
	bool first = true;

	for (const struct page_node *cell = row->first; cell; cell = cell->next) {
		if (!is_cell(cell)) {
			markdown_node(m, cell);
			continue;
		}
		writer_space(&m->writer);
		if (!first && cell->first && *between && !m->writer.pending_lines)
			writer_text(&m->writer, between);
		writer_space(&m->writer);
		markdown_children(m, cell);
		writer_suspend(&m->writer);
		first = first && !cell->first;
	}
}

static void write_rows(struct page_markdown *m, const struct page_node *node, bool as_list)
{
	for (const struct page_node *child = node->first; child; child = child->next) {
		if (!page_is(child, "tr")) {
			if (page_is(child, "thead") || page_is(child, "tbody") ||
				page_is(child, "tfoot"))
				write_rows(m, child, as_list);
			else if (!page_is(child, "caption"))
				markdown_node(m, child);
			continue;
		}
		writer_break(&m->writer, as_list ? 1 : 2);
		if (as_list)
			writer_push(&m->writer, "- ", "  ");
		write_cells(m, child, as_list ? "—" : "");
		writer_flush_code(&m->writer);
		if (as_list)
			writer_pop(&m->writer);
		writer_break(&m->writer, as_list ? 1 : 2);
	}
}

static void write_caption(struct page_markdown *m, const struct page_node *table)
{
	for (const struct page_node *child = table->first; child; child = child->next) {
		if (!page_is(child, "caption"))
			continue;
		writer_break(&m->writer, 2);
		markdown_children(m, child);
		writer_break(&m->writer, 2);
	}
}

void markdown_table(struct page_markdown *m, const struct page_node *table)
{
	const char *role = page_attribute(table, "role");
	bool inside = m->writer.in_heading || m->writer.in_cell || m->writer.in_code;
	bool layout = has_table(table) ||
		      (role && (strcmp(role, "presentation") == 0 || strcmp(role, "none") == 0));
	struct grid grid = {.fits = !layout && !inside};

	writer_break(&m->writer, 2);
	write_caption(m, table);
	if (grid.fits)
		add_rows(&grid, table);
	if (grid.fits && !grid.error && is_rectangle(&grid))
		write_grid(m, &grid);
	else
		write_rows(m, table,
			!layout && grid.first && grid.first->next && grid.first->columns > 1);
	writer_break(&m->writer, 2);
	if (grid.error && !m->writer.error)
		m->writer.error = grid.error;
	while (grid.first) {
		struct row *next = grid.first->next;

		free(grid.first);
		grid.first = next;
	}
}
