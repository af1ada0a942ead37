/* split */
#include "../src/sparse/sparse_private.h"
#include "../src/passes/passes_api.h"
#include <stdio.h>
#include <time.h>
#include <stdlib.h>
static void lg(sbit_log_level l,const char*m,void*u){(void)u;if(l==SBIT_LOG_WARNING)printf("  warning: %s\n",m);}
int main(int argc,char**argv){
  sbit_ctx*ctx;sbit_error e;sbit_graph*g;memset(&e,0,sizeof e);
  sbit_ctx_desc cd;memset(&cd,0,sizeof cd);cd.logger.log_fn=lg;
  if(sbit_ctx_create(&cd,&ctx,&e)||sbit_graph_load(ctx,argv[1],&g,&e)){printf("%s\n",e.message);return 1;}
  char yaml[300];snprintf(yaml,sizeof yaml,"SPARSER: {TYPE: structured, STRATEGY: %s, RATIO: %s, PRUNE_BIAS: %s}\n",argc>4?argv[4]:"l1norm",argc>2?argv[2]:"0.5",argc>3?argv[3]:"true");
  sbit_sconfig*c;if(sbit_sconfig_read(ctx,yaml,strlen(yaml),&c,&e)){printf("%s\n",e.message);return 1;}
  clock_t t0=clock();
  sbit_sparse*s;if(sbit_sparse_create(g,c,&s,&e)){printf("%s: create: %s\n",argv[1],e.message);return 1;}
  clock_t t1=clock();
  if(sbit_sparse_select(s,NULL,&e)){printf("%s: select: %s\n",argv[1],e.message);return 1;}
  clock_t t2=clock();
  if(getenv("SHOWG"))for(size_t i=0;i<sbit_sparse_group_count(s);i++){sbit_sparse_group x;sbit_sparse_group_at(s,i,&x);printf("  %s: %d of %d%s%s\n",x.layers,(int)x.kept,(int)x.channels,x.reason[0]?"; ":"",x.reason);}
  sbit_graph*o=NULL;if(sbit_sparse_shrink(s,NULL,&o,&e)){printf("%s %s %s: shrink: %s\n",argv[1],argv[2],argv[3],e.message);return 1;}
  clock_t t3=clock();
  sbit_infer(g,&e);
  sbit_graph_cost a,b;memset(&a,0,sizeof a);memset(&b,0,sizeof b);sbit_graph_cost_of(g,&a,&e);sbit_graph_cost_of(o,&b,&e);
  printf("%s %s %s: params %.3f macs %.3f  (%.2f + %.2f + %.2f s)\n",argv[1],argc>2?argv[2]:"",argc>3?argv[3]:"",(double)b.params/(double)a.params,(double)b.macs/(double)a.macs,(double)(t1-t0)/1e6,(double)(t2-t1)/1e6,(double)(t3-t2)/1e6);
  if(getenv("OUT"))if(sbit_graph_save(o,getenv("OUT"),NULL,&e))printf("%s\n",e.message);
  if(getenv("OUTM")){sbit_graph*m=NULL;if(sbit_sparse_masked(s,&m,&e)||sbit_graph_save(m,getenv("OUTM"),NULL,&e))printf("%s\n",e.message);sbit_graph_destroy(m);}
  sbit_graph_destroy(o);sbit_sparse_destroy(s);sbit_sconfig_destroy(c);sbit_graph_destroy(g);sbit_ctx_destroy(ctx);return 0;}
