/* build_quantized.h: a built graph, quantized. Include after sparsebit.h, test.h and build_graph.h. */
#ifndef SBIT_BUILD_QUANTIZED_H
#define SBIT_BUILD_QUANTIZED_H

/* The graph quantized by a configuration, calibrated on the samples of x (batch and rows as in
 * sbit_feed_desc). NULL if something failed. Free with sbit_graph_destroy. */
TEST_FN sbit_graph *build_quantized(build *b, const char *text, const sbit_tensor *x,
                                    int64_t batch, int64_t rows)
{
    sbit_qconfig *config = NULL;
    sbit_graph *q = NULL;
    sbit_feed feed;
    sbit_feed_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(&feed, 0, sizeof feed);
    desc.inputs = x;
    desc.input_count = 1;
    desc.batch = batch;
    desc.rows = rows;
    if (!b->failed) {
        build_do(b, sbit_feed_of_tensors(b->ctx, &desc, &feed, &b->error), "feed");
        build_do(b, sbit_qconfig_read(b->ctx, text, strlen(text), &config, &b->error), "config");
        build_do(b, sbit_quantize(b->graph, config, &feed, &q, &b->error), "quantize");
    }
    sbit_qconfig_destroy(config);
    sbit_feed_close(&feed);
    return q;
}

#endif /* SBIT_BUILD_QUANTIZED_H */
