/* JupyterLab drops the "alt" of an output's metadata; nbconvert heeds it. This gives it to the image.
   Written by hand in the form that JupyterLab loads (a container of webpack's module federation): nothing is built. */
(() => {
  const TYPE = "image/png", RANK = 90; // JupyterLab's own rank of images: a lower one would change which output it shows
  let shared = {};

  function withText(factory) {
    return {
      ...factory,
      createRenderer(options) {
        const widget = factory.createRenderer(options), render = widget.renderModel.bind(widget);
        widget.renderModel = async (model) => {
          await render(model);
          const image = widget.node.querySelector("img"), text = model.metadata[TYPE]?.alt;
          if (image && text) image.alt = text;
        };
        return widget;
      },
    };
  }

  async function plugin() {
    const [version] = Object.values(shared["@jupyterlab/rendermime"]);
    const { IRenderMimeRegistry } = (await version.get())();
    return {
      id: "figure_texts:plugin",
      autoStart: true,
      requires: [IRenderMimeRegistry],
      activate(app, registry) {
        registry.addFactory(withText(registry.getFactory(TYPE)), RANK);
      },
    };
  }

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["figure_texts"] = {
    init(scope) {
      shared = scope;
    },
    async get() {
      const found = await plugin();
      return () => ({ __esModule: true, default: found });
    },
  };
})();
