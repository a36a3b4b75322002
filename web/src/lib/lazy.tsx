// Pages that are fetched when they are first opened, so that the first one is there sooner.
import type { ComponentType, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failure, Loading } from "../ui/bits";

export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Lazy(props: P): VNode {
    const [state, setState] = useState<{ page: ComponentType<P> | null; error: Error | null }>({ page: loaded, error: null });
    useEffect(() => {
      if (loaded === null) {
        load().then(
          (page) => {
            loaded = page;
            setState({ page, error: null });
          },
          (error: Error) => setState({ page: null, error }),
        );
      }
    }, []);
    if (state.error) return <Failure error={state.error} retry={() => location.reload()} />;
    const Page = state.page;
    return Page ? <Page {...props} /> : <Loading />;
  };
}
