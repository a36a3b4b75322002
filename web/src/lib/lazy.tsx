// Pages that are fetched when they are first opened, so that the first one is there sooner.
import type { ComponentType, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failure, Loading } from "../ui/bits";

type LazyPage<P> = ComponentType<P> & { preload: () => void };

export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): LazyPage<P> {
  let loaded: ComponentType<P> | null = null;
  function Lazy(props: P): VNode {
    const [state, setState] = useState<{ page: ComponentType<P> | null; error: Error | null }>({ page: loaded, error: null });
    useEffect(() => {
      if (state.page === null) {
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
  }
  // What fails here fails again, and is told, when the page is opened.
  Lazy.preload = () => void load().then((page) => (loaded = page), () => {});
  return Lazy;
}
