// Where the steps of a graph are drawn: each one column after the last step it waits for.

export interface Placed {
  name: string;
  column: number;
  row: number;
}

export function layoutGraph(nodes: readonly { name: string; after: string[] }[]): Placed[] {
  const known = new Map(nodes.map((node) => [node.name, node]));
  const columns = new Map<string, number>();
  const columnOf = (name: string, open: Set<string>): number => {
    const found = columns.get(name);
    if (found !== undefined) return found;
    if (open.has(name)) return 0; // a cycle would be a mistake of whoever recorded it
    open.add(name);
    const before = (known.get(name)?.after ?? []).filter((one) => known.has(one));
    const column = before.length === 0 ? 0 : 1 + Math.max(...before.map((one) => columnOf(one, open)));
    columns.set(name, column);
    return column;
  };
  const rows = new Map<number, number>();
  return nodes.map(({ name }) => {
    const column = columnOf(name, new Set());
    const row = rows.get(column) ?? 0;
    rows.set(column, row + 1);
    return { name, column, row };
  });
}
